package dataset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// maxClipS is more than any clip lasts, 31 years; it keeps sums of what callers hand in finite.
const maxClipS = 1e9

// maxStep is how many entries a worker takes at a time: few enough that all end together.
const maxStep = 64

// countedAtOnce is how many entries a worker measures before it counts them as done: the counters
// are shared.
const countedAtOnce = 8

// defectOf is the reason of a file over which a worker panics.
const defectOf = "defect of this library, please report it with the file: %v"

// measureAll measures the entries in parallel into rows, one each, with a reader for each worker.
func measureAll(ctx context.Context, entries []entry, rows []row, workers int, p *Progress,
	readers func() *reader) error {
	p.Total.Add(int64(len(entries)))
	step := max(1, min(maxStep, len(entries)/(4*workers)))
	var next atomic.Int64
	var defect atomic.Value
	var wait sync.WaitGroup
	for range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			defer func() {
				if p := recover(); p != nil {
					defect.Store(fmt.Sprint(p))
				}
			}()
			c := readers()
			defer c.pause(true)
			for ctx.Err() == nil {
				c.pause(false)
				from := int(next.Add(int64(step))) - step
				if from >= len(entries) {
					return
				}
				to := min(from+step, len(entries))
				for ; from < to && ctx.Err() == nil; from += countedAtOnce {
					end := min(from+countedAtOnce, to)
					measureSome(entries[from:end], rows[from:end], c, p)
				}
			}
		}()
	}
	finished := make(chan struct{})
	go func() { wait.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
		if slices.ContainsFunc(entries, func(e entry) bool { return e.data != nil }) {
			<-finished // with the caller's memory
		}
	}
	if p := defect.Load(); p != nil {
		panic(p) // on to the caller's recovery
	}
	if ctx.Err() != nil {
		return cancelled(ctx, fmt.Sprintf("measuring, %d of %d files done", p.Done.Load(),
			p.Total.Load()))
	}
	return nil
}

func measureSome(entries []entry, rows []row, c *reader, p *Progress) {
	bad := 0
	for i := range entries {
		guarded(&entries[i], &rows[i], c)
		if rows[i].err() != "" {
			bad++
		}
	}
	p.Done.Add(int64(len(entries)))
	p.Bad.Add(int64(bad))
}

// guarded turns a panic over one file into a bad file. Parsers keep no state, so the others are not
// touched by it.
func guarded(e *entry, r *row, c *reader) {
	defer func() {
		if p := recover(); p != nil {
			*r = row{path: e.path}
			r.bad(fmt.Sprintf(defectOf, p))
		}
	}()
	c.measure(e, r)
}

// reader measures by reading, or by what the cache has.
type reader struct {
	*Clips
	cache *workerCache // nil without one
	stop  func(error)  // ends the scan
}

// lose ends the scan: what cannot be read from storage that does not answer is no bad clip.
func (c *reader) lose(err error) {
	c.lost.CompareAndSwap(nil, fault.From(err))
	c.stop(err)
}

func (c *reader) pause(last bool) {
	if c.cache != nil {
		c.cache.flush(last)
	}
}

func (c *reader) measure(e *entry, r *row) {
	r.path = e.path
	switch {
	case e.clip != nil:
		c.given(e.clip, r)
	case e.more != nil && e.more.by != nil:
		info, err := e.more.by.measure(r)
		c.found(&info, err, r)
	case e.data != nil:
		info, err := audio.Bytes(e.path, *e.data)
		r.size, r.digest = int64(len(*e.data)), media.Digest(*e.data)
		c.found(&info, err, r)
	case c.cache != nil:
		c.cached(e, r)
	default:
		info, st, err := audio.File(e.path)
		r.size, r.digest = max(st.Size, 0), st.Digest
		c.found(&info, err, r)
	}
}

// cached measures a file unless the cache has it.
func (c *reader) cached(e *entry, r *row) {
	var m cachedFile
	key := c.cache.key(e.path)
	st, unchanged, err := c.cache.find(e.path, key, &m)
	if unchanged {
		r.size, r.digest, r.duration, r.kind = st.Size, st.Digest, m.duration, c.kinds.of(m.kind)
		if m.claimed > 0 {
			r.odd = &odd{claimed: m.claimed}
		}
		return
	}
	var info media.Info
	if err == nil || media.Unanswered(err) { // storage is asked again
		info, st, err = audio.File(e.path)
	}
	r.size, r.digest = max(st.Size, 0), st.Digest
	if c.found(&info, err, r); err == nil {
		c.cache.keep(&cachedFile{key: key, stat: st, duration: r.duration, claimed: r.claimed(),
			kind: kindOf(&info)})
	}
}

func (c *reader) found(info *media.Info, err error, r *row) {
	if err != nil {
		if fault.Is(err, fault.Storage) {
			c.lose(err)
		}
		r.bad(why(err))
		return
	}
	r.duration = info.DurationS
	if info.ClaimedS != nil {
		r.odd = &odd{claimed: *info.ClaimedS}
	}
	r.kind = c.kinds.of(kindOf(info))
}

func kindOf(info *media.Info) Kind {
	return Kind{info.SampleRate, info.Channels, info.Bits, info.Codec, info.Method}
}

// given takes a clip that is known already. It is bad when its duration cannot be.
func (c *Clips) given(clip *profile.Clip, r *row) {
	r.path, r.size = clip.Path, clip.SizeBytes
	switch d := clip.DurationS; {
	case clip.Error != "":
		r.bad(clip.Error)
	case math.IsNaN(*d) || math.IsInf(*d, 0) || *d <= 0, *d > maxClipS:
		r.bad(fmt.Sprintf("has a duration of %v s", *d))
	default:
		r.duration = *d
		if clip.ClaimedS != nil && *clip.ClaimedS > 0 && *clip.ClaimedS <= math.MaxFloat64 {
			r.odd = &odd{claimed: *clip.ClaimedS}
		}
		r.kind = c.kinds.of(Kind{clip.SampleRate, clip.Channels, clip.Bits, clip.Codec,
			clip.Method})
	}
}

// why is the reason without the file's name, which stands beside it, and with the remedy where
// there is one.
func why(err error) string {
	f := fault.From(err)
	text := f.Message
	if cause := errors.Unwrap(f); cause != nil {
		text = cause.Error()
	}
	if f.Code == fault.Unsupported {
		text += "; " + f.Hint
	}
	return fault.Printable(text)
}

// manyFiles is from where on memory counts more than the time that saving it takes.
const manyFiles = 1 << 16

// gcPercent is how much garbage may lie beside what is in use while many files are scanned, in the
// whole process.
const gcPercent = 30

// ReturnMemory returns the system back what a scan of so many files needed and no longer does; it
// takes some milliseconds where they are many, and nothing otherwise.
func ReturnMemory(files int) {
	if files >= manyFiles {
		debug.FreeOSMemory()
	}
}
