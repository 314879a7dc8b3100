package riff

import (
	"encoding/binary"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
)

// Format tags of plain samples, and of the chunk that names its codec elsewhere (mmreg.h).
const (
	tagPCM        = 1
	tagFloat      = 3
	tagALaw       = 6
	tagMuLaw      = 7
	tagExtensible = 0xfffe
)

// otherTags names common codecs that WAV files hold and this package does not read (mmreg.h).
var otherTags = map[int]string{
	0x22: "TrueSpeech", 0x42: "G.723.1", 0x160: "WMA", 0x161: "WMA", 0x162: "WMA", 0xff: "AAC",
	0x2000: "AC-3", 0x674f: "Vorbis", 0xf1ac: "FLAC",
}

type wavFormat struct {
	pcm.Packing
	codec    string // "" where the data are frames of MPEG audio that speak for themselves
	rate     int    // Hz
	channels int    // > 0
	bits     int    // per sample
}

// parseWAVFormat reads the body of a fmt chunk, 16 to 40 bytes of it.
func parseWAVFormat(b []byte, order binary.ByteOrder) (*wavFormat, error) {
	if len(b) < 16 {
		return nil, media.Corrupt("has a fmt chunk of %d bytes instead of 16 or more", len(b))
	}
	tag := int(order.Uint16(b))
	f := &wavFormat{
		channels: int(order.Uint16(b[2:])),
		rate:     int(order.Uint32(b[4:])),
		bits:     int(order.Uint16(b[14:])),
	}
	if tag == tagExtensible {
		if len(b) < 26 {
			return nil, media.Corrupt(
				"has an extensible fmt chunk of %d bytes, too short to name its codec", len(b))
		}
		tag = int(order.Uint16(b[24:])) // the GUID of the subformat starts with the tag
	}
	switch {
	case f.rate == 0:
		return nil, media.Corrupt("has a sample rate of 0 Hz")
	case f.channels == 0:
		return nil, media.Corrupt("has 0 channels")
	}
	align := int64(order.Uint16(b[12:]))
	if tag == tagPCM || tag == tagFloat || tag == tagALaw || tag == tagMuLaw {
		return f, f.plain(tag, align, order)
	}
	perBlock := int64(0) // samples per block
	if len(b) >= 20 {
		perBlock = int64(order.Uint16(b[18:]))
	}
	return f, f.compressed(tag, align, perBlock)
}

// plainCodec names a codec by its tag and the bytes per sample; "" when there is none.
func plainCodec(tag int, width int64, bigEndian bool) string {
	switch {
	case tag == tagALaw:
		return "pcm_alaw"
	case tag == tagMuLaw:
		return "pcm_mulaw"
	case tag == tagFloat:
		return pcm.PlainCodec('f', width, bigEndian)
	case width == 1:
		return "pcm_u8"
	}
	return pcm.PlainCodec('s', width, bigEndian)
}

// plain takes a codec with one sample of a fixed size per channel. Like every decoder it goes by
// the bits and not by the block size, which many writers get wrong; but 24 bits may lie in 4 bytes.
func (f *wavFormat) plain(tag int, align int64, order binary.ByteOrder) error {
	width := int64(f.bits+7) / 8
	switch {
	case tag == tagALaw || tag == tagMuLaw: // whatever the bits say
		width, f.bits = 1, 8
	case f.bits == 0 && align%int64(f.channels) == 0:
		width = align / int64(f.channels)
		f.bits = int(8 * width)
	case width == 3 && align == 4*int64(f.channels):
		width = 4
	}
	f.codec, f.Packing = plainCodec(tag, width, order == binary.BigEndian),
		pcm.PlainPacking(f.channels, width)
	if f.codec == "" {
		return media.Corrupt("has samples of %d bits and blocks of %d bytes for %d channels, "+
			"which is inconsistent", f.bits, align, f.channels)
	}
	return nil
}

// compressed takes a codec that packs samples into blocks or a few bits each.
func (f *wavFormat) compressed(tag int, align, perBlock int64) error {
	switch tag {
	case 0x0002:
		f.codec = "adpcm_ms"
		return f.adpcm(align, perBlock, 4, 7, 2, 1, 2)
	case 0x0011:
		return f.ima(align, perBlock)
	case 0x0010, 0x0017:
		return f.streamed("adpcm_ima_oki", 4)
	case 0x0020:
		return f.streamed("adpcm_yamaha", 4)
	case 0x0014, 0x0040, 0x0045, 0x0064:
		return f.streamed("adpcm_g726", f.bits)
	case 0x028f:
		return f.streamed("adpcm_g722", 4)
	case 0x0031:
		return f.fixed("gsm_ms", 65, 320)
	case 0x0050, 0x0055:
		return nil
	case 0x0083:
		return f.fixed("g729", 10, 80)
	}
	name := otherTags[tag]
	if name == "" {
		name = "an unknown codec"
	}
	return media.Unsupported("is a WAV file with %s inside (format tag 0x%04x), which is not "+
		"supported", name, tag)
}

// ima takes IMA ADPCM: a head of 4 bytes and 1 sample per channel, then groups of 4 bytes per
// channel, or 12 and 20 where 3 and 5 bits do not fit otherwise.
func (f *wavFormat) ima(align, perBlock int64) error {
	f.codec = "adpcm_ima_wav"
	group := map[int][2]int64{2: {4, 16}, 3: {12, 32}, 4: {4, 8}, 5: {20, 32}}[f.bits]
	return f.adpcm(align, perBlock, f.bits, 4, 1, group[0], group[1])
}

// adpcm takes blocks of align bytes with a head; sizes are per channel. perBlock may be 0.
func (f *wavFormat) adpcm(align, perBlock int64, bits int,
	head, headSamples, step, stepSamples int64) error {
	n := int64(f.channels)
	switch {
	case f.bits != bits || step == 0:
		return media.Unsupported("is %s with %d bits a sample, which is not supported", f.codec,
			f.bits)
	case align < head*n:
		return media.Corrupt("has %s blocks of %d bytes, shorter than their header", f.codec, align)
	}
	f.Packing = pcm.Packing{Align: align, Head: head * n, HeadSamples: headSamples, Step: step * n,
		StepSamples: stepSamples}
	f.Samples = headSamples + (align-f.Head)/f.Step*stepSamples
	if perBlock > 0 {
		f.Samples = min(f.Samples, perBlock)
	}
	return nil
}

// streamed takes ADPCM of a few bits a sample without blocks.
func (f *wavFormat) streamed(codec string, bits int) error {
	if bits < 2 || bits > 5 {
		return media.Corrupt("is %s with %d bits a sample", codec, bits)
	}
	f.codec, f.Packing = codec, pcm.BitPacking(f.channels, bits)
	return nil
}

// fixed takes speech codecs of one channel with blocks of a size of their own.
func (f *wavFormat) fixed(codec string, align, samples int64) error {
	if f.channels != 1 {
		return media.Corrupt("is %s with %d channels instead of one", codec, f.channels)
	}
	f.codec, f.Packing = codec, pcm.Packing{Align: align, Samples: samples}
	return nil
}
