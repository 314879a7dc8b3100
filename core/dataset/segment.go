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
	clip := c.file.clip
	if clip.Error != "" {
		return clip
	}
	held := *clip.DurationS
	left := held - c.offset
	clip.ClaimedS, clip.DurationS = nil, nil
	switch {
	case !(c.offset >= 0) || !(c.seconds >= 0) || math.IsInf(c.offset+c.seconds, 0):
		clip.Error = fmt.Sprintf("the row asks for %g s from %g s on", c.seconds, c.offset)
		return clip
	case left <= 0:
		clip.Error = fmt.Sprintf("the row starts at %.3f s, but the file ends at %.3f s", c.offset, held)
		return clip
	case c.seconds > left+segmentSlackS:
		clip.ClaimedS = &c.seconds
	case c.seconds > 0:
		left = min(left, c.seconds)
	}
	clip.DurationS = &left
	clip.SizeBytes = int64(float64(clip.SizeBytes) * left / held)
	return clip
}

// measureOne measures one entry by itself.
func measureOne(e entry) profile.Clip {
	c := Clips{rows: make([]row, 1)}
	guarded(&e, &c.rows[0], &reader{Clips: &c})
	return c.At(0)
}
