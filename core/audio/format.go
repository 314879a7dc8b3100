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

// parse finds the format by its magic bytes and lets its parser work.
func parse(s *source) (Info, error) {
	if s.size == 0 {
		return Info{}, corrupt("is empty")
	}
	base := skipID3(s)
	format := sniff(s.at(base, sniffLen))
	switch {
	case format == nil: // or frames behind something else
		return parseFrames(s, base)
	case format.parse == nil:
		return Info{}, unsupported("is %s, which is not read yet", format.name)
	}
	return format.parse(s, base)
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
var firstRead = func() map[uint64]int64 {
	lengths := make(map[uint64]int64)
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
var headLens = map[string]int64{
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
