package trace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Op is what an operation's name says about the storages it makes.
type Op struct {
	Unit Unit
	Pad  Pad
}

// Unit is what the number of an allocation counts. Sizes with thresholds, which no formula over a
// few shapes carries, are recorded as what they are computed from; package reduction computes them.
type Unit struct {
	Count   Count
	Columns uint32 // of the matrix whose rows are counted
}

// Count is what is counted.
type Count uint8

// What an allocation's number counts.
const (
	Bytes     Count = iota
	Elements        // "length": of a row, before a padded copy; nothing is allocated
	ColumnSum       // "column_sum:<columns>": rows that are summed up
	NormSum         // "norm_sum:<columns>": rows whose layer norm's gradients are summed up
	// "norm_blocks:4:<columns>": rows of a layer norm, of which blocks of float32 are made first
	NormBlocks
	NormBlocksHalf // "norm_blocks:2:<columns>": the same in 16 bits
)

// Pad is a copy that attention makes of a mask whose rows are no multiple of some number of
// elements. It is recorded at every length, after the length of a row, so that segments of all
// lengths have one structure.
type Pad struct {
	Multiple int64 // 0: no padded copy
	Back     int32 // allocations from the copy back to what it copies
}

const (
	lengthOp    = "length"
	padOp       = "pad:" // "pad:<multiple>:<allocations back>"
	maxMultiple = 1 << 20

	// MaxColumns of a matrix whose rows are counted.
	MaxColumns = 1 << 31
)

var counted = []struct {
	head  string
	count Count
}{{"column_sum:", ColumnSum}, {"norm_sum:", NormSum}, {"norm_blocks:4:", NormBlocks},
	{"norm_blocks:2:", NormBlocksHalf}}

// ParseOp reads an operation's name.
func ParseOp(name string) (Op, error) {
	if name == lengthOp {
		return Op{Unit: Unit{Count: Elements}}, nil
	}
	if text, ok := strings.CutPrefix(name, padOp); ok {
		return parsePad(name, text)
	}
	for _, c := range counted {
		text, ok := strings.CutPrefix(name, c.head)
		if !ok {
			continue
		}
		columns, err := strconv.ParseUint(text, 10, 64)
		if err != nil || columns < 1 || columns > MaxColumns {
			return Op{}, fmt.Errorf("operation %q: the columns are a number from 1 to %d",
				fault.Shorten(name), int64(MaxColumns))
		}
		return Op{Unit: Unit{c.count, uint32(columns)}}, nil
	}
	return Op{}, nil
}

func parsePad(name, text string) (Op, error) {
	first, second, _ := strings.Cut(text, ":")
	multiple, err := strconv.ParseUint(first, 10, 32)
	back, err2 := strconv.ParseUint(second, 10, 31)
	if err != nil || err2 != nil || multiple < 1 || multiple > maxMultiple || back < 2 {
		return Op{}, fmt.Errorf(
			"operation %q: a padded copy is pad:<multiple, 1 to %d>:<allocations back, from 2>",
			fault.Shorten(name), maxMultiple)
	}
	return Op{Pad: Pad{int64(multiple), int32(back)}}, nil
}

// ParseOps reads the operations' names of a checked trace.
func ParseOps(names []string) []Op {
	ops := make([]Op, len(names))
	for i, name := range names {
		ops[i], _ = ParseOp(name)
	}
	return ops
}
