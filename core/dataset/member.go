package dataset

import (
	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// sectionClip measures a file that lies inside another one.
func sectionClip(path, name string, start, size int64) profile.Clip {
	clip := profile.Clip{Path: name, SizeBytes: size}
	info, err := audio.Section(path, name, start, size)
	if err != nil {
		clip.Error = why(err)
		if fault.Is(err, fault.Storage) {
			clip.Lost = err
		}
		return clip
	}
	clip.DurationS, clip.ClaimedS = &info.DurationS, info.ClaimedS
	clip.SampleRate, clip.Channels, clip.Bits = info.SampleRate, info.Channels, info.Bits
	clip.Codec, clip.Method = info.Codec, info.Method
	return clip
}
