package isobmff

import (
	"fmt"
	"strconv"
)

// pcmFormat is how uncompressed sound is stored.
type pcmFormat struct {
	explicit           bool // the flags of a lpcm entry say it all
	float, big, signed bool
	little             bool // what enda or pcmC say
}

// name returns FFmpeg's name of the codec and the bits of a sample. Source: Apple, QuickTime File
// Format, sound sample descriptions.
func (p pcmFormat) name(kind string, bits int) (string, int) {
	if !p.explicit {
		p.signed, p.big = true, !p.little
		switch kind {
		case "sowt":
			p.big = false
		case "raw ", "NONE":
			p.signed = bits > 8
		case "fl32", "fl64", "fpcm":
			p.float = true
		}
		if n, err := strconv.Atoi(kind[2:]); err == nil { // "in24", "fl32"
			bits = n
		}
	}
	letter, order := "u", "le"
	if p.signed {
		letter = "s"
	}
	if p.float {
		letter = "f"
	}
	if p.big {
		order = "be"
	}
	bits = max(8, (bits+7)/8*8)
	if bits == 8 {
		order = ""
	}
	return fmt.Sprintf("pcm_%s%d%s", letter, bits, order), bits
}
