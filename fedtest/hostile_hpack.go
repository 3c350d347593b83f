package fedtest

import "strings"

// As much of HPACK (RFC 7541) as it takes to read a request's header and to
// write an answer's.

type hpackField struct{ name, value string }

// hpackStatic is the static table, as "name value" from index 1 on.
var hpackStatic = func() []hpackField {
	var table []hpackField
	for line := range strings.SplitSeq(`:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|`+
		`:scheme https|:status 200|:status 204|:status 206|:status 304|:status 400|:status 404|:status 500|`+
		`accept-charset|accept-encoding gzip, deflate|accept-language|accept-ranges|accept|`+
		`access-control-allow-origin|age|allow|authorization|cache-control|content-disposition|content-encoding|`+
		`content-language|content-length|content-location|content-range|content-type|cookie|date|etag|expect|`+
		`expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|`+
		`link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|`+
		`server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate`, "|") {
		name, value, _ := strings.Cut(line, " ")
		table = append(table, hpackField{name, value})
	}
	return table
}()

// huffmanLengths are the lengths of the codes of the bytes from 0 to 255. The
// code is canonical, so they are all there is to know.
var huffmanLengths = [256]uint8{
	13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
	6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
	13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
	15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
	20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
	22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
	26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
	20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
}

type huffmanCode struct {
	length uint8
	bits   uint32
}

var huffmanCodes = func() map[huffmanCode]byte {
	codes := make(map[huffmanCode]byte, len(huffmanLengths))
	next := uint32(0)
	for length := uint8(1); length <= 30; length++ {
		next <<= 1
		for b, l := range huffmanLengths {
			if l == length {
				codes[huffmanCode{length, next}] = byte(b)
				next++
			}
		}
	}
	return codes
}()

func huffmanDecode(p string) string {
	var out strings.Builder
	var code huffmanCode
	for i := range len(p) {
		for bit := 7; bit >= 0; bit-- {
			code.length++
			code.bits = code.bits<<1 | uint32(p[i]>>bit&1)
			if b, ok := huffmanCodes[code]; ok {
				out.WriteByte(b)
				code = huffmanCode{}
			}
		}
	}
	return out.String() // what is left of the code is padding
}

// hpackDecoder reads the header blocks of one connection.
type hpackDecoder struct {
	dynamic []hpackField // newest first
	size    int
}

const hpackTableSize = 4096

func (d *hpackDecoder) add(f hpackField) {
	d.dynamic = append([]hpackField{f}, d.dynamic...)
	d.size += len(f.name) + len(f.value) + 32
	for d.size > hpackTableSize && len(d.dynamic) > 0 {
		oldest := d.dynamic[len(d.dynamic)-1]
		d.size -= len(oldest.name) + len(oldest.value) + 32
		d.dynamic = d.dynamic[:len(d.dynamic)-1]
	}
}

func (d *hpackDecoder) field(index int) hpackField {
	switch {
	case index >= 1 && index <= len(hpackStatic):
		return hpackStatic[index-1]
	case index > len(hpackStatic) && index <= len(hpackStatic)+len(d.dynamic):
		return d.dynamic[index-len(hpackStatic)-1]
	}
	return hpackField{}
}

// decode returns the fields of a block; as many as it can read.
func (d *hpackDecoder) decode(block string) map[string]string {
	fields := make(map[string]string)
	for block != "" {
		var f hpackField
		switch b := block[0]; {
		case b&0x80 != 0: // indexed
			f = d.field(hpackInt(&block, 7))
		case b&0xe0 == 0x20: // the table's size changes
			hpackInt(&block, 5)
			continue
		case b&0xc0 == 0x40: // literal, to be indexed
			f = d.literal(&block, 6)
			d.add(f)
		default: // literal
			f = d.literal(&block, 4)
		}
		fields[f.name] = f.value
	}
	return fields
}

func (d *hpackDecoder) literal(block *string, prefix int) hpackField {
	f := d.field(hpackInt(block, prefix))
	if f.name == "" {
		f.name = hpackString(block)
	}
	f.value = hpackString(block)
	return f
}

// hpackInt takes an integer whose first byte has so many bits for it.
func hpackInt(block *string, prefix int) int {
	if *block == "" {
		return 0
	}
	limit := 1<<prefix - 1
	n := int((*block)[0]) & limit
	*block = (*block)[1:]
	if n < limit {
		return n
	}
	for shift := 0; *block != "" && shift < 28; shift += 7 {
		b := (*block)[0]
		*block = (*block)[1:]
		n += int(b&0x7f) << shift
		if b&0x80 == 0 {
			break
		}
	}
	return n
}

func hpackString(block *string) string {
	if *block == "" {
		return ""
	}
	huffman := (*block)[0]&0x80 != 0
	n := min(hpackInt(block, 7), len(*block))
	s := (*block)[:n]
	*block = (*block)[n:]
	if huffman {
		return huffmanDecode(s)
	}
	return s
}

// hpackEncode writes names and values, in turn, as literals that are not indexed.
func hpackEncode(fields ...string) string {
	var block strings.Builder
	for i, s := range fields {
		if i%2 == 0 {
			block.WriteByte(0)
		}
		n := len(s)
		if n < 127 {
			block.WriteByte(byte(n))
		} else {
			block.WriteByte(127)
			for n -= 127; n >= 128; n >>= 7 {
				block.WriteByte(byte(n) | 0x80)
			}
			block.WriteByte(byte(n))
		}
		block.WriteString(s)
	}
	return block.String()
}
