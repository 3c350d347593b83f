package fedconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
)

// TestPeerPages: what docs/peers recommends is a configuration that a Transport
// takes.
func TestPeerPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/peers/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(data), "```yaml\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s recommends nothing", page)
		}
		for _, block := range blocks {
			block, _, closed := strings.Cut(block, "```")
			if !closed {
				t.Errorf("%s: a block without an end", page)
			}
			peers, err := fedconfig.Parse(page, []byte(block))
			if err != nil {
				t.Errorf("%v\nin\n%s", err, block)
				continue
			}
			transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Book: &fedhttp.PolicyBook{}})
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if err := transport.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
