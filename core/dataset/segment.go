package dataset

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// segmentSlackS is by how much a piece may exceed its file without a note: manifests round to
// hundredths.
const segmentSlackS = 0.02

// segment is a piece of a file, as rows of NeMo, Kaldi's segments and Lhotse's cuts select it.
type segment struct {
	file    *measuredFile
	offset  float64
	seconds float64 // 0: to the end of the file
}

// measuredFile is a file that is measured once for all its pieces: a recording of hours may have
// thousands.
type measuredFile struct {
	once sync.Once
	clip profile.Clip
}

func (c *segment) measure(e entry) profile.Clip {
	c.file.once.Do(func() { c.file.clip = measureOne(entry{path: e.path}) })
	return cut(c.file.clip, c.offset, c.seconds)
}

// cut returns the piece of a clip from offset on, to its end where seconds is 0. A piece that
// exceeds the clip lasts as long as the clip does, with the seconds as its claim; one that starts
// behind the clip is bad.
func cut(clip profile.Clip, offset, seconds float64) profile.Clip {
	if clip.Error != "" {
		return clip
	}
	duration := *clip.DurationS
	available := duration - offset
	clip.ClaimedS, clip.DurationS = nil, nil
	switch {
	case !(offset >= 0) || !(seconds >= 0) || math.IsInf(offset+seconds, 0):
		clip.Error = fmt.Sprintf("the row asks for %g s from %g s on", seconds, offset)
		return clip
	case available <= 0:
		clip.Error = fmt.Sprintf("the row starts at %.3f s, but the file ends at %.3f s", offset,
			duration)
		return clip
	case seconds > available+segmentSlackS:
		clip.ClaimedS = &seconds
	case seconds > 0:
		available = min(available, seconds)
	}
	clip.DurationS = &available
	clip.SizeBytes = int64(float64(clip.SizeBytes) * available / duration)
	return clip
}

// measureOne measures one entry outside a scan.
func measureOne(e entry) profile.Clip {
	c := Clips{rows: make([]row, 1)}
	guarded(&e, &c.rows[0], &reader{Clips: &c})
	clip := c.At(0)
	if lost := c.lost.Load(); lost != nil {
		clip.Lost = lost
	}
	return clip
}

// fragment splits a path that selects a piece of a file: talk.flac#t=12.5,30 is 12.5 s to 30 s of
// talk.flac. Where a file of that very name exists, that is meant. Source: W3C, Media Fragments URI
// 1.0, 4.2.1 (temporal dimension).
func fragment(e *entry) (file string, start, end float64, ok bool) {
	hash := strings.LastIndexByte(e.path, '#')
	if hash < 0 || e.clip != nil {
		return "", 0, 0, false
	}
	times, ok := strings.CutPrefix(e.path[hash:], "#t=")
	from, to, both := strings.Cut(times, ",")
	if !ok || !both {
		return "", 0, 0, false
	}
	start, errStart := strconv.ParseFloat(from, 64)
	end, errEnd := strconv.ParseFloat(to, 64)
	if errStart != nil || errEnd != nil {
		return "", 0, 0, false
	}
	if e.data == nil {
		if _, err := os.Lstat(e.path); err == nil {
			return "", 0, 0, false
		}
	}
	return e.path[:hash], start, end, true
}

// recording is the file that a worker measured last for a piece of it: the pieces of one file
// mostly follow each other.
type recording struct {
	path string
	data *[]byte
	clip profile.Clip
}

// piece measures the piece of a file that a fragment names.
func (c *reader) piece(e *entry, file string, start, end float64, r *row) {
	if c.last == nil || c.last.path != file || c.last.data != e.data {
		c.last = &recording{file, e.data, measureOne(entry{path: file, data: e.data})}
	}
	if c.last.clip.Lost != nil {
		c.lose(c.last.clip.Lost)
	}
	clip := cut(c.last.clip, start, end-start)
	c.given(&clip, r)
	r.path = e.path
}
