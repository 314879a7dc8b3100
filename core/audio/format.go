package audio

import (
	"bytes"
)

// format is one row of the magic table.
type format struct {
	name       string // for people
	extensions []string
	magic      func(head []byte) bool
	parse      func(s *source, base int64) (Info, error) // nil: known, but not read yet
}

// formats in the order of trial: the loosest magic comes last.
var formats = []format{
	{"WAV", []string{".wav", ".wave", ".rf64", ".bwf"}, isWAV, parseWAV},
	{"FLAC", []string{".flac"}, prefix("fLaC"), parseFLAC},
	{"Ogg", []string{".ogg", ".oga", ".opus", ".spx"}, prefix("OggS"), parseOgg},
	{"Sony Wave64", []string{".w64"}, prefix("riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb"), parseW64},
	{"AIFF", []string{".aif", ".aiff", ".aifc"}, inFORM, parseAIFF},
	{"MP4/M4A", []string{".m4a", ".m4b", ".m4r", ".mp4", ".mov", ".3gp"}, isMP4, parseMP4},
	{"Matroska/WebM", []string{".mka", ".mkv", ".weba", ".webm"}, prefix("\x1a\x45\xdf\xa3"), parseMatroska},
	{"Windows Media (ASF)", []string{".wma"}, prefix("\x30\x26\xb2\x75\x8e\x66\xcf\x11"), nil},
	{"AMR", []string{".amr", ".awb"}, prefix("#!AMR"), parseAMR},
	{"Core Audio (CAF)", []string{".caf"}, prefix("caff\x00\x01"), parseCAF},
	{"Sun/NeXT AU", []string{".au", ".snd"}, isAU, parseAU},
	{"NIST SPHERE", []string{".sph", ".nist"}, prefix("NIST_1A"), parseSPHERE},
	{"WavPack", []string{".wv"}, prefix("wvpk"), nil},
	{"Monkey's Audio", []string{".ape"}, prefix("MAC "), nil},
	{"AAC (ADIF)", nil, prefix("ADIF"), nil},
	{"AAC (ADTS)", []string{".aac"}, isADTS, parseFrames},
	{"MP3", []string{".mp3", ".mp2", ".mp1", ".mpga"}, isMPEG, parseFrames},
}

// sniffLen is how many bytes the magic table looks at.
const sniffLen = 32

func sniff(head []byte) *format {
	for i := range formats {
		if formats[i].magic(head) {
			return &formats[i]
		}
	}
	return nil
}

func prefix(magic string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

func inFORM(h []byte) bool {
	return len(h) >= 12 && string(h[:4]) == "FORM" && (string(h[8:12]) == "AIFF" || string(h[8:12]) == "AIFC")
}

func isADTS(h []byte) bool {
	_, ok := parseADTSHead(h)
	return ok
}

// isMPEG takes an ID3v2 tag too that nothing follows.
func isMPEG(h []byte) bool {
	f, ok := parseSyncFrame(h)
	return ok && !f.isADTS() || bytes.HasPrefix(h, []byte("ID3"))
}

const (
	id3HeadLen  = 10
	maxHeadTags = 16
)

// skipID3 gives the offset behind the ID3v2 tags at the start, 0 without one. Some taggers write them before FLAC too. Only
// their headers are read. A tag that claims the whole file or more is not skipped: then it is wrong, or all there is.
func skipID3(s *source) int64 {
	var off int64
	for range maxHeadTags {
		h := s.at(off, id3HeadLen)
		if len(h) < id3HeadLen || string(h[:3]) != "ID3" || h[3] == 0xff || h[4] == 0xff || (h[6]|h[7]|h[8]|h[9])&0x80 != 0 {
			break
		}
		n := id3HeadLen + syncsafe(h[6:])
		if h[5]&0x10 != 0 { // a footer
			n += id3HeadLen
		}
		if off+n >= s.size {
			break
		}
		off += n
	}
	return off
}

// Extensions lists the file extensions, lower case with their dot, that a folder scan takes for audio. Formats that are not
// read yet are among them: their files shall be counted as unusable, not overlooked.
func Extensions() []string {
	var all []string
	for i := range formats {
		all = append(all, formats[i].extensions...)
	}
	return all
}

// firstRead is how many bytes are read at once of files by their extension (see ending).
var firstRead = func() map[uint64]int {
	lengths := make(map[uint64]int)
	for i := range formats {
		for _, e := range formats[i].extensions {
			lengths[ending(e)] = shortHeadLen
			if special := headLens[e]; special > 0 {
				lengths[ending(e)] = special
			}
		}
	}
	return lengths
}()

// headLens are those of formats with longer headers than most, or shorter ones.
var headLens = map[string]int{
	".wav": wavHeadLen, ".wave": wavHeadLen, ".flac": headLen, ".ogg": headLen, ".oga": headLen, ".opus": headLen, ".spx": headLen,
}

// HasExtension says whether name ends like an audio file, in upper or lower case.
func HasExtension(name string) bool { return firstRead[ending(name)] > 0 }

// ending packs what follows the last dot of a name into a number, in lower case: names are asked about by the million.
// It is 0 without a dot in the last eight bytes.
func ending(name string) (packed uint64) {
	for i := len(name) - 1; i >= max(0, len(name)-8); i-- {
		c := name[i]
		switch {
		case c == '.':
			return packed
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		packed = packed<<8 | uint64(c)
	}
	return 0
}
