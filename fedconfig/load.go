package fedconfig

import (
	"path/filepath"
	"reflect"
	"strings"

	"github.com/fedhttp/fedhttp"
)

// Load reads the peers of a file. A name that ends in ".json" says that it is
// JSON, every other that it is YAML. A file that cannot be read is an error of
// package os; one that can, but has faults, is an *[Error] with all of them.
func Load(path string) ([]fedhttp.Peer, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse is [Load] for a file's content. The name tells the format by its end,
// and is what faults name as the file.
//
// The peers are ready for a [fedhttp.Config] or for [fedhttp.Transport.SetPeers]:
// what those would refuse is a fault here. Only a peer with require_anchor also
// needs a Config.Anchors, which no file has.
func Parse(name string, data []byte) ([]fedhttp.Peer, error) {
	c, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	return c.doc.Peers, nil
}

func parse(name string, data []byte) (*config, error) {
	found := faults{file: name}
	c := &config{root: &spot{typ: reflect.TypeFor[document]()}}
	if data, ok := plain(data, &found); ok {
		c.decode(name, data, &found)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *config) decode(name string, data []byte, found *faults) {
	format := parseYAML
	if strings.EqualFold(filepath.Ext(name), ".json") {
		format = parseJSON
	}
	n := format(data, found)
	if n == nil || n.kind == null {
		found.add(place{}, "", "is empty; want peers")
		return
	}
	c.root.place = n.place
	d := decoder{faults: found}
	d.decode(n, reflect.ValueOf(&c.doc).Elem(), c.root)
	if version := c.root.at("Version"); version != nil && !version.faulty && c.doc.Version != 1 {
		d.fault(version, "%v is not known; want 1", shown{c.doc.Version, version})
	}
	if peers := c.root.at("Peers"); peers != nil && !peers.faulty && len(c.doc.Peers) == 0 {
		d.fault(peers, "has no peer; want at least one")
	}
	if !d.large { // else what was left out would seem to be missing
		c.check(found)
	}
}
