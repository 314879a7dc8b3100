package riff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// w64Head is the GUID and the size of the file, and the GUID "wave".
const w64Head = 40

// ParseW64 reads Sony Wave64: WAV with GUIDs as ids, sizes of 64 bits that count the head, and
// chunks at multiples of 8. Source: Sony Pictures Digital, "Wave64 File Format".
func ParseW64(s *media.File, base int64) (media.Info, error) {
	if h := s.At(base, w64Head); len(h) < w64Head || string(h[24:28]) != "wave" {
		return media.Info{}, media.Corrupt("is a Wave64 file without waves")
	}
	return parseWave(s, &w64Chunks, base+w64Head)
}
