package dataset

import (
	"cmp"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// segmentSlackS is by how much a piece may exceed its file without a note: manifests round to
// hundredths.
const segmentSlackS = 0.02

// segment is a piece of a file, as rows of NeMo, Kaldi's segments, Lhotse's cuts and fragments of
// paths select it.
type segment struct {
	file    *measuredFile
	offset  float64
	seconds float64 // 0: to the end of the file
}

// measuredFile is a file that is measured once for all its pieces: a recording of hours may have
// thousands.
type measuredFile struct {
	path string  // "" for that of the entry
	data *[]byte // in memory, nil of a file on disk
	once sync.Once
	info media.Info
	size int64
	err  error
}

func (c *segment) measure(r *row) (info media.Info, err error) {
	f := c.file
	f.once.Do(func() {
		f.err = errors.New("its file cannot be measured") // stays after a panic
		if f.data != nil {
			f.size = int64(len(*f.data))
			f.info, f.err = audio.Bytes(f.path, *f.data)
			return
		}
		var st media.Stat
		f.info, st, f.err = audio.File(cmp.Or(f.path, r.path))
		f.size = st.Size
	})
	if f.err != nil {
		return media.Info{}, f.err
	}
	info, r.size, err = cut(f.info, f.size, c.offset, c.seconds)
	return info, err
}

// cut returns the piece of a file from offset on, to its end where seconds is 0, and its part of
// the bytes. A piece that exceeds the file lasts as long as the file does, with the seconds as its
// claim; one that starts past the end of the file is bad.
func cut(info media.Info, size int64, offset, seconds float64) (media.Info, int64, error) {
	available := info.DurationS - offset
	claimed := (*float64)(nil)
	switch {
	case !(offset >= 0) || !(seconds >= 0) || math.IsInf(offset+seconds, 0):
		return info, 0, media.Corrupt("the row asks for %g s from %g s on", seconds, offset)
	case available <= 0:
		return info, 0, media.Corrupt("the row starts at %.3f s, but the file ends at %.3f s",
			offset, info.DurationS)
	case seconds > available+segmentSlackS:
		claimed = &seconds
	case seconds > 0:
		available = min(available, seconds)
	}
	size = int64(float64(size) * available / info.DurationS)
	info.DurationS, info.ClaimedS = available, claimed
	return info, size, nil
}

// withPieces lets entries whose paths name a piece of a file be measured as one.
func withPieces(entries []entry) {
	files := map[string]*measuredFile{}
	for i := range entries {
		e := &entries[i]
		path, start, end, ok := fragment(e)
		if !ok {
			continue
		}
		if files[path] == nil || e.data != nil {
			files[path] = &measuredFile{path: path, data: e.data}
		}
		more := new(detail)
		if e.more != nil {
			more.text = e.more.text
		}
		more.by = &segment{files[path], start, end - start}
		e.more = more
	}
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
