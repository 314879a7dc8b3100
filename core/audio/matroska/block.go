package matroska

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// Lacing: how several frames share one block. Source: RFC 9559, section 10.3.
const (
	lacingNone = iota
	lacingXiph
	lacingFixed
	lacingEBML
)

const (
	// bytes of a block: its head, the lengths of its frames, the start of the first
	blockPeek  = 1024
	maxLaced   = 256
	laceStep   = 255
	blockFixed = 3 // timestamp and flags after the track's number
)

// group reads a block together with its group's elements.
func (m *document) group(e element) {
	var block element
	var duration, discard float64
	for c := range m.w.elements(e) {
		switch c.id {
		case idBlock:
			block = c
		case idBlockDuration:
			duration = float64(m.w.number(c)) * m.scale / nanos
		case idDiscard:
			if n := m.w.number(c); !c.cut && c.size() <= 8 && n < media.MaxTicks {
				discard = float64(n) / nanos
			}
		}
	}
	if block.end > 0 {
		block.cut = block.cut || e.cut && block.end == e.end
		m.block(block, duration, discard)
	}
}

// block adds a block of the track. A cut one does not play.
func (m *document) block(e element, duration, discard float64) {
	h := m.w.At(e.body, int(min(16, e.size())))
	number, n, _ := vint(h)
	if m.track == nil || n == 0 || number != m.track.number || len(h) < n+blockFixed || e.cut ||
		e.end > m.w.File.Size {
		return
	}
	m.blocks++
	m.w.Spend(media.StepsBlock)
	start := (m.cluster + float64(int16(be.Uint16(h[n:])))) * m.scale / nanos
	frames := m.laces(e, e.body+int64(n+blockFixed), int(h[n+2]>>1&3))
	rate := float64(m.track.info.SampleRate)
	var samples int64
	counted := len(frames) > 0
	for i, f := range frames {
		if i > 0 && !m.w.Spend(media.StepsHead) {
			return
		}
		k := int64(0)
		if !m.track.opaque {
			k = m.track.packets.samples(m.peek(f), f.size())
		}
		counted = counted && (k > 0 || m.track.packets.vorbis != nil)
		samples += k
	}
	length := float64(samples) / rate
	if !counted {
		m.unknown = true
		if length = duration; length == 0 {
			length = m.track.fallback * float64(len(frames))
		}
	}
	drop := min(int64(discard*rate+0.5), int64(length*rate+0.5))
	m.samples, m.discard = m.samples+samples, m.discard+drop
	if !m.any || m.mute {
		m.any, m.first = true, start
		m.mute = counted && samples == 0
	}
	m.end = max(m.end, start+length)
}

// peek returns the first bytes of a frame, with those in front that were stripped from all.
func (m *document) peek(f element) []byte {
	b := m.w.At(f.body, int(min(packetPeek, f.size())))
	if len(m.track.prefix) > 0 {
		return append(append(make([]byte, 0, 2*packetPeek), m.track.prefix...), b...)
	}
	return b
}

// laces returns the frames of a block, which start at off. They are valid until the next call.
func (m *document) laces(e element, off int64, lacing int) []element {
	m.frames = m.frames[:0]
	if lacing == lacingNone {
		m.frames = append(m.frames, element{body: off, end: e.end})
		return m.frames
	}
	h := m.w.At(off, int(min(blockPeek, e.end-off)))
	if len(h) < 1 {
		return nil
	}
	var sizes [maxLaced]int64
	count := int(h[0]) + 1
	used, ok := laceSizes(h[1:], sizes[:count], lacing, e.end-off-1)
	if !ok {
		return nil
	}
	pos := off + 1 + int64(used)
	for _, size := range sizes[:count] {
		m.frames = append(m.frames, element{body: pos, end: pos + size})
		pos += size
	}
	return m.frames
}

// laceSizes reads the sizes of frames, which with h itself take total bytes; the last one has what
// is left.
func laceSizes(h []byte, sizes []int64, lacing int, total int64) (used int, ok bool) {
	count := len(sizes)
	if lacing == lacingFixed {
		for i := range sizes {
			sizes[i] = total / int64(count)
		}
		return 0, total%int64(count) == 0
	}
	var sum int64
	for i := range count - 1 {
		var size int64
		var n int
		if lacing == lacingXiph {
			size, n = xiphSize(h[used:])
		} else {
			size, n = ebmlSize(h[used:], i > 0)
			if i > 0 {
				size += sizes[i-1]
			}
		}
		used += n
		sum += size
		if n == 0 || size < 0 || sum+int64(used) > total {
			return 0, false
		}
		sizes[i] = size
	}
	sizes[count-1] = total - int64(used) - sum
	return used, true
}

// xiphSize adds up bytes to the first that is not 255.
func xiphSize(b []byte) (size int64, n int) {
	for i, x := range b {
		size += int64(x)
		if x < laceStep {
			return size, i + 1
		}
	}
	return 0, 0
}

// ebmlSize reads a size, or with difference how it differs from the one before: a number with its
// middle at 0.
func ebmlSize(b []byte, difference bool) (size int64, n int) {
	x, n, _ := vint(b)
	if difference && n > 0 {
		return int64(x) - (1<<(7*n-1) - 1), n
	}
	return int64(x), n
}
