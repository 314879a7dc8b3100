package audio

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio/amr"
	"github.com/asrconfig/asrconfig-go/core/audio/flac"
	"github.com/asrconfig/asrconfig-go/core/audio/isobmff"
	"github.com/asrconfig/asrconfig-go/core/audio/matroska"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/mpeg"
	"github.com/asrconfig/asrconfig-go/core/audio/ogg"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
	"github.com/asrconfig/asrconfig-go/core/audio/riff"
)

type format struct {
	name       string // for people
	extensions []string
	first      int64 // bytes to read at once of files with these; 0: media.ShortHeadLen
	magic      func(head []byte) bool
	parse      func(s *media.File, base int64) (media.Info, error) // nil: known, but not read yet
}

// formats in the order of trial: the loosest magic comes last.
var formats = []format{
	{"WAV", []string{".wav", ".wave", ".rf64", ".bwf"}, leastHeadLen, riff.IsWAV, riff.ParseWAV},
	{"FLAC", []string{".flac"}, leastHeadLen, prefix("fLaC"), flac.Parse},
	{"Ogg", []string{".ogg", ".oga", ".opus", ".spx"}, media.HeadLen, prefix("OggS"), ogg.Parse},
	{"Sony Wave64", []string{".w64"}, 0, prefix("riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb"),
		riff.ParseW64},
	{"AIFF", []string{".aif", ".aiff", ".aifc"}, 0, riff.IsAIFF, riff.ParseAIFF},
	{"MP4/M4A", []string{".m4a", ".m4b", ".m4r", ".mp4", ".mov", ".3gp"}, 0, isobmff.Is,
		isobmff.Parse},
	{"Matroska/WebM", []string{".mka", ".mkv", ".weba", ".webm"}, 0, prefix("\x1a\x45\xdf\xa3"),
		matroska.Parse},
	{"Windows Media (ASF)", []string{".wma"}, 0, prefix("\x30\x26\xb2\x75\x8e\x66\xcf\x11"),
		nil},
	{"AMR", []string{".amr", ".awb"}, 0, prefix("#!AMR"), amr.Parse},
	{"Core Audio (CAF)", []string{".caf"}, 0, prefix("caff\x00\x01"), riff.ParseCAF},
	{"Sun/NeXT AU", []string{".au", ".snd"}, 0, pcm.IsAU, pcm.ParseAU},
	{"NIST SPHERE", []string{".sph", ".nist"}, 0, prefix("NIST_1A"), pcm.ParseSPHERE},
	{"WavPack", []string{".wv"}, 0, prefix("wvpk"), nil},
	{"Monkey's Audio", []string{".ape"}, 0, prefix("MAC "), nil},
	{"AAC (ADIF)", nil, 0, prefix("ADIF"), nil},
	{"AAC (ADTS)", []string{".aac"}, 0, mpeg.IsADTS, mpeg.Parse},
	{"MP3", []string{".mp3", ".mp2", ".mp1", ".mpga"}, 0, mpeg.IsMPEG, mpeg.Parse},
}

// sniffLen is how many bytes the magic table looks at.
const sniffLen = 32

func prefix(magic string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

func parse(s *media.File) (media.Info, error) {
	if s.Size == 0 {
		return media.Info{}, media.Corrupt("is empty")
	}
	base := mpeg.SkipID3(s)
	head := s.At(base, sniffLen)
	at := slices.IndexFunc(formats, func(f format) bool { return f.magic(head) })
	if base > 0 {
		s.Mark(base)
	}
	switch {
	case at < 0: // or frames after something else
		return mpeg.Parse(s, base)
	case formats[at].parse == nil:
		return media.Info{}, media.Unsupported("is %s, which is not supported yet",
			formats[at].name)
	}
	return formats[at].parse(s, base)
}

// Extensions lists the file extensions, lower case with their dot, that a folder scan takes for
// audio. Formats that are not read yet are among them: their files shall be counted as unusable,
// not overlooked.
func Extensions() []string {
	var all []string
	for i := range formats {
		all = append(all, formats[i].extensions...)
	}
	return all
}

// firstRead is how many bytes are read at once of files by their extension.
var firstRead = func() map[string]int64 {
	lengths := make(map[string]int64)
	for _, f := range formats {
		for _, e := range f.extensions {
			lengths[e] = cmp.Or(f.first, media.ShortHeadLen)
		}
	}
	return lengths
}()

// leastHeadLen is read at once of WAV and FLAC files. Their headers are shorter still, and most of
// a FLAC file's first 8 KiB is left free for tags. For copying less a scan is a tenth faster.
const leastHeadLen = 1 << 10

// HasExtension reports whether name ends like an audio file, in upper or lower case.
func HasExtension(name string) bool { return firstRead[ending(name)] > 0 }

func ending(name string) string { return strings.ToLower(filepath.Ext(name)) }
