package audio

// w64Head is the GUID and the size of the file, and the GUID "wave".
const w64Head = 40

// parseW64 reads Sony Wave64: WAV with GUIDs as ids, sizes of 64 bits that count the head, and chunks at multiples of 8.
// Source: Sony Pictures Digital, "Wave64 File Format".
func parseW64(s *source, base int64) (Info, error) {
	if h := s.at(base, w64Head); len(h) < w64Head || string(h[24:28]) != "wave" {
		return Info{}, corrupt("is a Wave64 file without waves")
	}
	return parseWave(s, &w64Chunks, base+w64Head)
}
