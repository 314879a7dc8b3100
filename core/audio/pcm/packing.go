// Package pcm measures files of samples after a simple header, Sun AU and NIST SPHERE, and counts
// the samples in a number of bytes.
package pcm

import (
	"encoding/binary"
	"fmt"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// Packing is how a codec packs samples into bytes: one sample of every channel at a time, or blocks
// when compressed.
type Packing struct {
	Align   int64 // bytes of a block; > 0
	Samples int64 // per channel in a whole block; > 0
	// What a block that is cut short still gives; all 0: nothing.
	Head        int64 // bytes in front of its samples
	HeadSamples int64 // samples per channel in that head
	Step        int64 // the smallest group of bytes after it that gives whole samples, and
	StepSamples int64 // how many per channel
	// instead of all these: bits of one sample of every channel, packed without gaps
	bits int64
}

// MaxClaim bounds the sizes that headers claim: no sum or product of a claim and a packing
// overflows below it.
const MaxClaim = 1 << 48

// PlainPacking is for samples of a fixed number of bytes.
func PlainPacking(channels int, width int64) Packing {
	return Packing{Align: int64(channels) * width, Samples: 1}
}

// PlainCodec is FFmpeg's name of plain samples of width bytes: signed ('s'), unsigned ('u') or real
// numbers ('f'); "" where there are none such.
func PlainCodec(kind byte, width int64, bigEndian bool) string {
	order := "le"
	if bigEndian {
		order = "be"
	}
	switch {
	case width == 1 && kind != 'f':
		order = ""
	case width == 4, width == 8, kind == 's' && (width == 2 || width == 3):
	default:
		return ""
	}
	return fmt.Sprintf("pcm_%c%d%s", kind, 8*width, order)
}

// BitPacking is for samples of a fixed number of bits, packed without gaps.
func BitPacking(channels, bits int) Packing {
	n := int64(channels) * int64(bits)
	return Packing{Align: n, Samples: 8, bits: n}
}

// Frames counts the samples per channel in n bytes.
func (p Packing) Frames(n int64) int64 {
	return n/p.Align*p.Samples + p.cut(n%p.Align)
}

// cut counts the samples per channel in the first n bytes of a block.
func (p Packing) cut(n int64) int64 {
	switch {
	case p.bits > 0:
		return n * 8 / p.bits
	case p.Step == 0 || n < p.Head:
		return 0
	default:
		return min(p.Samples, p.HeadSamples+(n-p.Head)/p.Step*p.StepSamples)
	}
}

// IsOpen32 reports whether a 32-bit size is one of those that writers leave when they cannot seek
// back, more or less a header: FFmpeg and RF64 all ones, sox, espeak-ng and mplayer 0x7ffff000,
// sox's AIFF 0x7f000000, libraries with signed sizes the largest of those, arecord one more, lame
// all ones less its header.
func IsOpen32(n int64) bool {
	return n >= 0xfffff000 || n >= 0x7fffe000 && n <= 0x80001000 ||
		n >= 0x7f000000 && n <= 0x7f001000
}
