package dataset

import (
	"fmt"
	"math"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// segmentSlackS is how far a row may be off from the file before it is called wrong: manifests round to hundredths.
const segmentSlackS = 0.02

// segment is a piece of a file, as rows of NeMo, Kaldi's segments and Lhotse's cuts name it.
type segment struct {
	file    *measured
	offset  float64
	seconds float64 // 0: to the end of the file
}

// measured is a file that is measured once for all its pieces: a recording of hours may have thousands.
type measured struct {
	once sync.Once
	clip profile.Clip
}

// measure gives the piece that the file really holds. A piece that ends behind the file counts with what is there and keeps
// what the row claims; one that starts behind it is bad.
func (c *segment) measure(e entry) profile.Clip {
	c.file.once.Do(func() { c.file.clip = measureOne(entry{path: e.path}) })
	return cut(c.file.clip, c.offset, c.seconds)
}

// cut gives the seconds from offset on of a clip; 0 seconds are all to its end.
func cut(clip profile.Clip, offset, seconds float64) profile.Clip {
	if clip.Error != "" {
		return clip
	}
	held := *clip.DurationS
	left := held - offset
	clip.ClaimedS, clip.DurationS = nil, nil
	switch {
	case !(offset >= 0) || !(seconds >= 0) || math.IsInf(offset+seconds, 0):
		clip.Error = fmt.Sprintf("the row asks for %g s from %g s on", seconds, offset)
		return clip
	case left <= 0:
		clip.Error = fmt.Sprintf("the row starts at %.3f s, but the file ends at %.3f s", offset, held)
		return clip
	case seconds > left+segmentSlackS:
		clip.ClaimedS = &seconds
	case seconds > 0:
		left = min(left, seconds)
	}
	clip.DurationS = &left
	clip.SizeBytes = int64(float64(clip.SizeBytes) * left / held)
	return clip
}

// measureOne measures one entry by itself.
func measureOne(e entry) profile.Clip {
	c := Clips{rows: make([]row, 1)}
	guarded(&e, &c.rows[0], &reader{Clips: &c})
	clip := c.At(0)
	if lost := c.lost.Load(); lost != nil {
		clip.Lost = lost
	}
	return clip
}
