package fedtest

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"
)

// TestHPACKOfTheRFC reads the three requests of RFC 7541, appendix C.4: with
// Huffman codes, and with a dynamic table that goes on.
func TestHPACKOfTheRFC(t *testing.T) {
	t.Parallel()
	var d hpackDecoder
	first := map[string]string{":method": "GET", ":scheme": "http", ":path": "/", ":authority": "www.example.com"}
	second := maps.Clone(first)
	second["cache-control"] = "no-cache"
	for _, test := range []struct {
		block string
		want  map[string]string
	}{
		{"828684418cf1e3c2e5f23a6ba0ab90f4ff", first},
		{"828684be5886a8eb10649cbf", second},
		{"828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", map[string]string{
			":method": "GET", ":scheme": "https", ":path": "/index.html", ":authority": "www.example.com", "custom-key": "custom-value",
		}},
	} {
		block, err := hex.DecodeString(test.block)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.decode(string(block)); !maps.Equal(got, test.want) {
			t.Errorf("%s is %v, want %v", test.block, got, test.want)
		}
	}
}

// TestHPACKForgets: the dynamic table keeps to its size, newest first.
func TestHPACKForgets(t *testing.T) {
	t.Parallel()
	var d hpackDecoder
	for _, name := range []string{"a", "b", "c", "d"} {
		d.decode("\x40" + hpackEncode(name, strings.Repeat(name, 1500))[1:])
	}
	if d.size > hpackTableSize || d.field(62).name != "d" || d.field(63).name != "c" || d.field(64).name != "" {
		t.Errorf("size %d, %d fields", d.size, len(d.dynamic))
	}
}

func TestHPACKRoundTrip(t *testing.T) {
	t.Parallel()
	var d hpackDecoder
	for _, n := range []int{0, 1, 126, 127, 128, 254, 255, 10_000} {
		want := map[string]string{":status": "200", "x-long": strings.Repeat("v", n)}
		if got := d.decode(hpackEncode(":status", "200", "x-long", want["x-long"])); !maps.Equal(got, want) {
			t.Errorf("a value of %d bytes is %d bytes long", n, len(got["x-long"]))
		}
	}
}

// FuzzHPACK: no block makes the decoder fail or loop.
func FuzzHPACK(f *testing.F) {
	for _, seed := range []string{"", "\x80", "\xff\xff\xff\xff\xff\xff\xff\x01", "\x00\x7f\x10abc", "\x00\x84\xff\xff\xff\xff\x01a", "\x3f\xff\xff\xff\x07", "\x40"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, block string) {
		var d hpackDecoder
		d.decode(block)
		if d.size > hpackTableSize || d.size < 0 {
			t.Errorf("the table has %d bytes", d.size)
		}
	})
}
