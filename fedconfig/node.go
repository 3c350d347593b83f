package fedconfig

// kind is what a value of a file is, whatever its format.
type kind uint8

const (
	null kind = iota
	text
	number
	boolean
	sequence
	mapping
	unusable // it was refused already, and says nothing
)

func (k kind) String() string {
	return [...]string{"empty", "text", "a number", "true or false", "a list", "a mapping", "unusable"}[k]
}

// node is a value of a file, and where it begins.
type node struct {
	kind  kind
	place place
	text  string  // of a scalar, as it was written, without quotes and escapes
	items []*node // of a sequence
	pairs []pair  // of a mapping, in the order of the file, duplicates and all
}

type pair struct{ key, value *node }

// maxDepth is how deep values may nest. A file of peers needs nine levels.
const maxDepth = 64
