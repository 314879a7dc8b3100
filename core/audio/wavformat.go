package audio

// Format tags of the fmt chunk (mmreg.h).
const (
	tagPCM        = 0x0001
	tagADPCM      = 0x0002
	tagFloat      = 0x0003
	tagALaw       = 0x0006
	tagMuLaw      = 0x0007
	tagIMA        = 0x0011
	tagExtensible = 0xfffe
)

// otherTags names common codecs that WAV files hold and this package does not read.
var otherTags = map[int]string{0x31: "GSM 6.10", 0x40: "G.721", 0x45: "G.726", 0x50: "MPEG layer 2", 0x55: "MP3", 0x161: "WMA", 0xff: "AAC"}

// wavFormat is the fmt chunk.
type wavFormat struct {
	codec        string
	rate         int   // Hz
	channels     int   // > 0
	bits         int   // per sample
	align        int64 // bytes per sample of all channels, or per block when compressed; > 0
	blockSamples int64 // samples per channel in a block; 0 when not compressed
	blockHead    int64 // ADPCM: bytes in front of a block, for all channels
	headSamples  int64 // ADPCM: samples per channel in that head
	step         int64 // ADPCM: the smallest group of bytes that gives whole samples, and
	stepSamples  int64 // how many per channel
}

// parseWAVFormat reads the body of a fmt chunk, 16 to 40 bytes of it.
func parseWAVFormat(b []byte) (*wavFormat, error) {
	if len(b) < 16 {
		return nil, corrupt("has a fmt chunk of %d bytes instead of 16 or more", len(b))
	}
	tag := int(le.Uint16(b))
	f := &wavFormat{
		channels: int(le.Uint16(b[2:])),
		rate:     int(le.Uint32(b[4:])),
		align:    int64(le.Uint16(b[12:])),
		bits:     int(le.Uint16(b[14:])),
	}
	if tag == tagExtensible && len(b) >= 26 {
		tag = int(le.Uint16(b[24:])) // the GUID of the subformat starts with the tag
	}
	switch {
	case f.rate == 0:
		return nil, corrupt("has a sample rate of 0 Hz")
	case f.channels == 0:
		return nil, corrupt("has 0 channels")
	case f.align == 0:
		return nil, corrupt("has a block size of 0 bytes")
	}
	switch tag {
	case tagADPCM, tagIMA:
		return f, f.compressed(tag, b)
	default:
		return f, f.plain(tag)
	}
}

// plain names a codec with one fixed-size sample per channel. Its size is what the block size says: 24 bits may lie in 4 bytes.
func (f *wavFormat) plain(tag int) error {
	channels := int64(f.channels)
	width := f.align / channels
	if names, known := plainCodecs[tag]; !known {
		return unknownTag(tag)
	} else if f.align%channels == 0 && int64(f.bits) <= 8*width {
		f.codec = names[width]
	}
	if f.codec == "" {
		return corrupt("has a block size of %d bytes, which %d channels of %d bits cannot have", f.align, f.channels, f.bits)
	}
	return nil
}

// plainCodecs maps the tag and the bytes per sample to the codec.
var plainCodecs = map[int]map[int64]string{
	tagPCM:   {1: "pcm_u8", 2: "pcm_s16le", 3: "pcm_s24le", 4: "pcm_s32le", 8: "pcm_s64le"},
	tagFloat: {4: "pcm_f32le", 8: "pcm_f64le"},
	tagALaw:  {1: "pcm_alaw"},
	tagMuLaw: {1: "pcm_mulaw"},
}

func unknownTag(tag int) error {
	name := otherTags[tag]
	if name == "" {
		name = "an unknown codec"
	}
	return unsupported("is a WAV file with %s inside (format tag 0x%04x), which is not read yet", name, tag)
}

// compressed takes the block layout of ADPCM, 4 bits a sample: Microsoft's block head holds 7 bytes and 2 samples per
// channel, then come single bytes; IMA's 4 bytes and 1 sample, then groups of 4 bytes per channel.
func (f *wavFormat) compressed(tag int, b []byte) error {
	channels := int64(f.channels)
	if tag == tagADPCM {
		f.codec, f.blockHead, f.headSamples, f.step, f.stepSamples = "adpcm_ms", 7*channels, 2, channels, 2
	} else {
		f.codec, f.blockHead, f.headSamples, f.step, f.stepSamples = "adpcm_ima_wav", 4*channels, 1, 4*channels, 8
	}
	if f.bits != 4 {
		return unsupported("is %s with %d bits a sample, which is not read yet", f.codec, f.bits)
	}
	if f.align < f.blockHead {
		return corrupt("has %s blocks of %d bytes, shorter than their own head", f.codec, f.align)
	}
	f.blockSamples = f.inBlock(f.align)
	if len(b) >= 20 {
		if told := int64(le.Uint16(b[18:])); told > 0 {
			f.blockSamples = min(f.blockSamples, told)
		}
	}
	return nil
}

// inBlock counts the samples per channel in the first n bytes of an ADPCM block.
func (f *wavFormat) inBlock(n int64) int64 {
	if n < f.blockHead {
		return 0
	}
	return f.headSamples + (n-f.blockHead)/f.step*f.stepSamples
}

// frames counts the samples per channel in n bytes of data.
func (f *wavFormat) frames(n int64) int64 {
	if f.blockSamples == 0 {
		return n / f.align
	}
	return n/f.align*f.blockSamples + min(f.blockSamples, f.inBlock(n%f.align))
}
