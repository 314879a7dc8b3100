package audiotest

import "encoding/binary"

// WAV puts a RIFF file together chunk by chunk.
type WAV struct{ Encoded []byte }

// NewWAV starts a file; id is RIFF, RF64, BW64 or RIFX.
func NewWAV(id string) *WAV {
	return &WAV{append([]byte(id), "\xff\xff\xff\xffWAVE"...)}
}

// Chunk adds a chunk with its padding.
func (w *WAV) Chunk(id string, body []byte) *WAV {
	w.Claim(id, uint32(len(body)), body)
	if len(body)%2 == 1 {
		w.Encoded = append(w.Encoded, 0)
	}
	return w
}

// Claim adds a chunk whose size field differs from its size.
func (w *WAV) Claim(id string, size uint32, body []byte) *WAV {
	w.Encoded = append(binary.LittleEndian.AppendUint32(append(w.Encoded, id...), size), body...)
	return w
}

// Fmt adds a fmt chunk.
func (w *WAV) Fmt(tag, channels, rate, align, bits int, extra ...byte) *WAV {
	return w.Chunk("fmt ", append(FmtBody(tag, channels, rate, align, bits), extra...))
}

// FmtBody is the fixed part of a fmt chunk.
func FmtBody(tag, channels, rate, align, bits int) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(tag))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*align))
	b = binary.LittleEndian.AppendUint16(b, uint16(align))
	return binary.LittleEndian.AppendUint16(b, uint16(bits))
}

// Second is one of silence, at 16 kHz and 16 bits.
func Second() []byte { return make([]byte, 32000) }
