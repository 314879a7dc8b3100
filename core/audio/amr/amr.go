// Package amr measures AMR and AMR-WB files: speech frames after a magic line.
package amr

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	amrWindow = 64 << 10
	amrPerS   = 50 // frames of 20 ms
)

// amrKind is one of the two magic lines.
type amrKind struct {
	magic string
	codec string
	rate  int
	sizes [16]byte // bytes of a frame with its type byte, by type; 0: reserved
}

// Sizes: RFC 4867, 3GPP TS 26.101 and 26.201. 8 or 9 is comfort noise, 14 of wideband a lost frame,
// 15 no data: all play 20 ms.
var (
	amrNB = [16]byte{13, 14, 16, 18, 20, 21, 27, 32, 6, 0, 0, 0, 0, 0, 0, 1}
	amrWB = [16]byte{18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 0, 0, 0, 0, 1, 1}

	amrKinds = []amrKind{
		{"#!AMR\n", "amr_nb", 8000, amrNB}, {"#!AMR-WB\n", "amr_wb", 16000, amrWB},
	}
)

// Parse walks the frames of an AMR file, whose header has no length. Source: RFC 4867, section 5.
func Parse(s *media.File, base int64) (media.Info, error) {
	kind, off := amrMagic(s, base)
	if kind == nil {
		return media.Info{}, media.Corrupt("starts like AMR, but its variant is unknown")
	}
	info := media.Info{SampleRate: kind.rate, Channels: 1, Codec: kind.codec, Method: "walked"}
	frames, cut := amrFrames(s, &kind.sizes, off)
	perFrame, claimed := int64(kind.rate/amrPerS), int64(0)
	if cut { // the frame that a type byte announces is not there
		claimed = frames + 1
	}
	return media.Finish(info, frames*perFrame, claimed*perFrame)
}

func amrMagic(s *media.File, base int64) (*amrKind, int64) {
	for i := range amrKinds {
		n := len(amrKinds[i].magic)
		if string(s.At(base, n)) == amrKinds[i].magic {
			return &amrKinds[i], base + int64(n)
		}
	}
	return nil, 0
}

// amrFrames counts the frames from off on, and reports whether the last is cut.
// Bytes of a reserved type hold no frame: decoders skip them.
func amrFrames(s *media.File, sizes *[16]byte, off int64) (frames int64, cut bool) {
	for off < s.Size {
		b := s.At(off, amrWindow)
		i := 0
		for i < len(b) {
			n := int(sizes[b[i]>>3&0xf])
			if n > len(b)-i {
				break
			}
			if n > 0 {
				frames++
			}
			i += max(1, n)
		}
		if i == 0 {
			return frames, true
		}
		off += int64(i)
	}
	return frames, false
}
