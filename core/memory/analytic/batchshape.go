package analytic

import (
	"strconv"
	"strings"
)

// dtype is the type of a tensor's elements as far as memory knows it.
type dtype uint8

const (
	float32s dtype = iota
	halves         // float16 or bfloat16
	bools          // and other bytes
	int32s
	int64s
)

func (d dtype) bytes() int64 { return [...]int64{4, 2, 1, 4, 8}[d] }

// dim is one dimension with the name that formulas show.
type dim struct {
	name string
	n    int64
}

// padded rounds the dimension up to whole tiles.
func (d dim) padded(to int64) dim { return dim{d.name, (d.n + to - 1) / to * to} }

// doubled doubles the dimension.
func (d dim) doubled() dim { return dim{"2 " + d.name, 2 * d.n} }

const maxRank = 4

// shape is the dimensions of a storage; the unused ones have no name.
type shape [maxRank]dim

func of(dims ...dim) (s shape) {
	copy(s[:], dims)
	return s
}

func (s shape) rank() int {
	for i, d := range s {
		if d.name == "" {
			return i
		}
	}
	return maxRank
}

func (s shape) last() dim { return s[s.rank()-1] }

// withLast gives the shape with its last dimension replaced.
func (s shape) withLast(d dim) shape {
	s[s.rank()-1] = d
	return s
}

// maxElements bounds one storage. With it no sum over rows and layers leaves 64 bits, and no GPU comes near it.
const maxElements = 1 << 42

// elements is the product of the dimensions, or a little more than maxElements.
func (s shape) elements() int64 {
	n := int64(1)
	for _, d := range s[:s.rank()] {
		if d.n > 0 && n > maxElements/d.n {
			return maxElements + 1
		}
		n *= d.n
	}
	return n
}

// allocated is what the caching allocator counts for a tensor: multiples of 512 bytes, at least one
// (c10/cuda/CUDACachingAllocator.cpp, round_size).
func allocated(bytes int64) int64 {
	const block = 512
	return max(block, (bytes+block-1)/block*block)
}

// formula writes the bytes of one storage: "batch 8 × frames 749 × hidden 1024 × 2 B".
func (s shape) formula(d dtype) string {
	var b strings.Builder
	for _, each := range s[:s.rank()] {
		b.WriteString(each.name + " " + strconv.FormatInt(each.n, 10) + " × ")
	}
	return b.String() + strconv.FormatInt(d.bytes(), 10) + " B"
}
