package riff

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
)

const (
	cafHead       = 8 // magic, version, flags
	cafEditCount  = 4 // in front of the samples
	maxCafPacket  = 1 << 16
	cafFlagFloat  = 1
	cafFlagLittle = 2
)

type caf struct {
	pcm.Packing
	info media.Info
	// samples per channel in a packet of a codec whose packets vary in size; 0: they do not
	packet int64
	data   chunk
	table  chunk // of packets
}

// ParseCAF walks the chunks of a Core Audio file. Source: Apple "Core Audio Format Specification"
// 1.0.
func ParseCAF(s *media.File, base int64) (media.Info, error) {
	var a caf
	off := base + cafHead
	for range maxChunks {
		c, ok := cafChunks.read(s, off)
		if !ok {
			break
		}
		switch id := string(c.id[:]); {
		case id == "desc" && a.info.Codec == "":
			if err := a.description(c.peek); err != nil {
				return media.Info{}, err
			}
		case id == "data" && a.data.body == 0:
			if available := s.Size - c.body; c.size <= cafEditCount && available > cafEditCount &&
				!cafChunks.reachEnd(s, c.body+c.size) {
				c.size = openSize // a recording that was never closed
			}
			a.data = c
		case id == "pakt" && a.table.body == 0:
			a.table = c
		}
		if a.info.Codec != "" && a.data.body != 0 && (a.packet == 0 || a.table.body != 0) {
			break
		}
		off = cafChunks.next(s, c)
	}
	switch {
	case a.info.Codec == "":
		return media.Info{}, media.Corrupt("has no desc chunk, which gives its rate and format")
	case a.data.body == 0:
		return media.Info{}, media.Corrupt("ends before its data chunk and holds no audio")
	case a.packet > 0:
		return a.varying(s)
	}
	available := max(0, s.Size-a.data.body-cafEditCount)
	if a.data.size == openSize { // allowed, for the last chunk
		a.info.Method = "tail"
		return media.Finish(a.info, a.Frames(available), 0)
	}
	claim := max(0, a.data.size-cafEditCount)
	return media.Finish(a.info, a.Frames(min(available, claim)), a.Frames(claim))
}

func (a *caf) description(b []byte) error {
	if len(b) < 32 {
		return media.Corrupt("has a desc chunk of %d bytes instead of 32", len(b))
	}
	rate, kind, flags := math.Float64frombits(be.Uint64(b)), string(b[8:12]), be.Uint32(b[12:])
	packetLen, packet, channels :=
		int64(be.Uint32(b[16:])), int64(be.Uint32(b[20:])), be.Uint32(b[24:])
	switch {
	case !(rate >= 1 && rate < 1<<32):
		return media.Corrupt("has a sample rate of %g Hz", rate)
	case channels == 0 || channels > 0xffff:
		return media.Corrupt("has %d channels", channels)
	}
	a.info = media.Info{SampleRate: int(math.Round(rate)), Channels: int(channels),
		Bits: int(be.Uint32(b[28:])), Method: "header"}
	switch kind {
	case "lpcm":
		return a.linear(flags, packetLen)
	case "ulaw":
		a.info.Codec, a.info.Bits, a.Packing = "pcm_mulaw", 8, pcm.PlainPacking(a.info.Channels, 1)
	case "alaw":
		a.info.Codec, a.info.Bits, a.Packing = "pcm_alaw", 8, pcm.PlainPacking(a.info.Channels, 1)
	case "ima4":
		a.info.Codec, a.Packing = "adpcm_ima_qt", pcm.Packing{Align: 34 * int64(channels), Samples: 64}
	case "aac ", "alac", ".mp3", "opus", "flac":
		a.info.Codec, a.packet = map[string]string{"aac ": "aac", ".mp3": "mp3"}[kind], packet
		if a.info.Codec == "" {
			a.info.Codec = kind
		}
		if packet == 0 || packet > maxCafPacket || packetLen != 0 {
			return media.Unsupported(
				"is a CAF file with %s in packets of %d samples and %d bytes, which is not "+
					"supported", kind, packet, packetLen)
		}
	default:
		return media.Unsupported("is a CAF file with the codec %q, which is not supported", kind)
	}
	return nil
}

// linear determines how plain samples are packed.
func (a *caf) linear(flags uint32, packetLen int64) error {
	width := (int64(a.info.Bits) + 7) / 8
	kind := byte('s')
	if flags&cafFlagFloat != 0 {
		kind = 'f'
	}
	a.info.Codec, a.Packing = pcm.PlainCodec(kind, width, flags&cafFlagLittle == 0),
		pcm.PlainPacking(a.info.Channels, width)
	if a.info.Codec == "" || packetLen < a.Align || packetLen > 2*a.Align {
		return media.Corrupt("has samples of %d bits and packets of %d bytes for %d channels, "+
			"which is inconsistent", a.info.Bits, packetLen, a.info.Channels)
	}
	a.Align = packetLen
	return nil
}

// varying counts the packets that the data holds completely, by their sizes in the packet table.
func (a *caf) varying(s *media.File) (media.Info, error) {
	const head = 24 // packets, valid samples, priming, remainder
	if len(a.table.peek) < head && a.table.size != openSize {
		return media.Info{}, media.Corrupt(
			"ends before its packet table, without which its %s cannot be split into packets",
			a.info.Codec)
	}
	b := s.At(a.table.body, head)
	if len(b) < head {
		return media.Info{}, media.Corrupt("ends inside its packet table")
	}
	packets, valid, priming := int64(be.Uint64(b)), int64(be.Uint64(b[8:])),
		int64(int32(be.Uint32(b[16:])))
	size := min(a.table.size, s.Size-a.table.body) - head
	switch {
	case size > media.MaxRead:
		return media.Info{}, media.Unsupported("has a packet table of %d bytes, too long to check",
			size)
	case packets < 0 || packets > size || valid < 0 || priming < 0 || priming > valid ||
		valid > packets*a.packet:
		return media.Info{}, media.Corrupt(
			"has a packet table of %d bytes that claims %d packets and %d samples", size, packets,
			valid)
	}
	remaining := min(a.data.size, s.Size-a.data.body) - cafEditCount
	if a.data.size == openSize {
		remaining = s.Size - a.data.body - cafEditCount
	}
	complete, last, next := int64(0), int64(0), a.data.body+cafEditCount
	for table := s.At(a.table.body+head, int(size)); complete < packets &&
		len(table) > 0; complete++ {
		n, used := varint(table)
		if remaining -= n; remaining < 0 || used == 0 {
			break
		}
		last, next, table = next, next+n, table[used:]
	}
	samples := complete * a.packet
	if a.info.Codec == "alac" && complete == packets {
		samples -= a.packet - codec.ALACSamples(s.At(last, 7), a.packet)
	}
	return media.Finish(a.info, min(valid, samples-priming), valid)
}

// varint reads a number of 7 bits a byte, the highest first. used is 0 when it does not end in b or
// is too long for a packet's size.
func varint(b []byte) (n int64, used int) {
	for i, c := range b[:min(5, len(b))] {
		n = n<<7 | int64(c&0x7f)
		if c&0x80 == 0 {
			return n, i + 1
		}
	}
	return 0, 0
}
