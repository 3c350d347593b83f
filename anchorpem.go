package fedhttp

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
)

var (
	pemBegin = []byte("-----BEGIN")
	pemEnd   = []byte("-----END")
)

// parsePEM reads a bundle of CA certificates. Text before a block is a comment
// (RFC 7468, section 2). A block that encoding/pem would skip is an error: a CA
// would be missing, and nobody would know.
func parsePEM(data []byte) (anchorSet, error) {
	var set anchorSet
	var members [][]byte
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		read := data[:len(data)-len(rest)]
		data = rest
		n := len(members)
		switch {
		case bytes.Count(read, pemBegin) != 1 || bytes.Count(read, pemEnd) != 1:
			return anchorSet{}, fmt.Errorf("there is a block that cannot be read after %d certificate(s)", n)
		case block.Type != "CERTIFICATE":
			// It may be a private key: nothing of its content is shown.
			return anchorSet{}, fmt.Errorf("there is a block of type %s after %d certificate(s), and only CERTIFICATE is wanted", quote(block.Type), n)
		case len(block.Headers) > 0:
			return anchorSet{}, fmt.Errorf("certificate %d has headers, which no certificate has", n+1)
		case n == maxAnchorMembers:
			return anchorSet{}, fmt.Errorf("there are more than %d certificates", maxAnchorMembers)
		}
		if err := set.addRoot(block.Bytes); err != nil {
			return anchorSet{}, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		members = append(members, block.Bytes)
	}
	switch {
	case len(members) == 0:
		return anchorSet{}, errors.New("there is no certificate in it")
	case len(bytes.TrimSpace(data)) > 0:
		return anchorSet{}, fmt.Errorf("something that is no block follows certificate %d", len(members))
	}
	set.version = setVersion(members)
	return set, nil
}
