package dataset

import (
	"os"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// fragment splits a path that names a piece of a file as W3C's media fragments do: talk.flac#t=12.5,30 is 12.5 s to 30 s of
// talk.flac. A file that is called so is meant whole.
func fragment(e *entry) (file string, start, end float64, ok bool) {
	at := strings.LastIndexByte(e.path, '#')
	if at < 0 || e.clip != nil {
		return "", 0, 0, false
	}
	times, ok := strings.CutPrefix(e.path[at:], "#t=")
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
	return e.path[:at], start, end, true
}

// recording is the file that a reader measured last for a piece of it: pieces of one mostly follow each other.
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
