package analytic

import (
	"fmt"
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

func (d dim) times(name string, factor int64) dim { return dim{name, d.n * factor} }

// padded rounds the dimension up to whole tiles.
func (d dim) padded(to int64) dim { return dim{d.name, (d.n + to - 1) / to * to} }

const maxRank = 4

// shape is the dimensions of a storage, of which unused ones are empty.
type shape [maxRank]dim

func of(dims ...dim) (s shape) {
	copy(s[:], dims)
	return s
}

// last gives the shape with its last dimension replaced.
func (s shape) last(d dim) shape {
	for i := maxRank - 1; i >= 0; i-- {
		if s[i].name != "" {
			s[i] = d
			break
		}
	}
	return s
}

// elements saturates far above any memory, so that absurd sizes stay comparable.
func (s shape) elements() int64 {
	n := 1.0
	exact := int64(1)
	for _, d := range s {
		if d.name != "" {
			n, exact = n*float64(d.n), exact*d.n
		}
	}
	if n > maxBytes {
		return maxBytes
	}
	return exact
}

// maxBytes bounds one storage: 1 EiB.
const maxBytes = 1 << 60

// allocated is what the caching allocator counts for a tensor: multiples of 512 bytes, at least one.
// c10/cuda/CUDACachingAllocator.cpp, round_size.
func allocated(bytes int64) int64 {
	const block = 512
	return max(block, (bytes+block-1)/block*block)
}

// formula writes the bytes of one storage: "batch 8 × frames 749 × hidden 1024 × 2 B".
func (s shape) formula(d dtype) string {
	var b strings.Builder
	for _, each := range s {
		if each.name != "" {
			fmt.Fprintf(&b, "%s %d × ", each.name, each.n)
		}
	}
	fmt.Fprintf(&b, "%d B", d.bytes())
	return b.String()
}
