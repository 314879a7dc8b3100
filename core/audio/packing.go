package audio

// packing is how a codec packs samples into bytes: one sample of every channel at a time, or blocks when compressed.
type packing struct {
	align   int64 // bytes of a block; > 0
	samples int64 // per channel in a whole block; > 0
	// What a block that is cut short still gives; all 0: nothing.
	head        int64 // bytes in front of its samples
	headSamples int64 // samples per channel in that head
	step        int64 // the smallest group of bytes behind it that gives whole samples, and
	stepSamples int64 // how many per channel
	bits        int64 // instead of all these: bits of one sample of every channel, packed without gaps
}

// maxClaim bounds the sizes that headers claim: no sum or product of a claim and a packing overflows below it.
const maxClaim = 1 << 48

// plainPacking is for samples of a fixed number of bytes.
func plainPacking(channels int, width int64) packing {
	return packing{align: int64(channels) * width, samples: 1}
}

// bitPacking is for samples of a fixed number of bits, packed without gaps.
func bitPacking(channels, bits int) packing {
	n := int64(channels) * int64(bits)
	return packing{align: n, samples: 8, bits: n}
}

// fixedPacking is for blocks of a fixed number of bytes for all channels, that only play whole.
func fixedPacking(align, samples int64) packing { return packing{align: align, samples: samples} }

// frames counts the samples per channel in n bytes.
func (p packing) frames(n int64) int64 {
	return n/p.align*p.samples + p.cut(n%p.align)
}

// cut counts the samples per channel in the first n bytes of a block.
func (p packing) cut(n int64) int64 {
	switch {
	case p.bits > 0:
		return n * 8 / p.bits
	case p.step == 0 || n < p.head:
		return 0
	default:
		return min(p.samples, p.headSamples+(n-p.head)/p.step*p.stepSamples)
	}
}

// isOpen32 says whether a 32-bit size is one of those that writers leave when they cannot seek back, more or less a header:
// FFmpeg and RF64 all ones, sox, espeak-ng and mplayer 0x7ffff000, sox's AIFF 0x7f000000, libraries with signed sizes the
// largest of those, arecord one more, lame all ones less its header.
func isOpen32(n int64) bool {
	return n >= 0xfffff000 || n >= 0x7fffe000 && n <= 0x80001000 || n >= 0x7f000000 && n <= 0x7f001000
}
