package dataset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// maxClipS is more than any clip lasts, 31 years; it keeps sums of what callers hand in finite.
const maxClipS = 1e9

// maxStep is how many entries a worker takes at a time: few enough that all end together.
const maxStep = 64

// measureAll measures the entries in parallel; the clips come in their order.
func measureAll(ctx context.Context, entries []entry, workers int, p *Progress, measure func(entry) profile.Clip) ([]profile.Clip, error) {
	p.Total.Store(int64(len(entries)))
	clips := make([]profile.Clip, len(entries))
	step := max(1, min(maxStep, len(entries)/(4*workers)))
	var next atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for ctx.Err() == nil {
				from := int(next.Add(int64(step))) - step
				if from >= len(entries) {
					return
				}
				for i := from; i < min(from+step, len(entries)) && ctx.Err() == nil; i++ {
					clips[i] = guarded(entries[i], measure)
					if clips[i].Error != "" {
						p.Bad.Add(1)
					}
					p.Done.Add(1)
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
			<-finished
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, cancelled(ctx, fmt.Sprintf("measuring, %d of %d files done", p.Done.Load(), len(entries)))
	}
	return clips, nil
}

// guarded turns a panic over one file into a bad file. Parsers keep no state, so the others are not touched by it.
func guarded(e entry, measure func(entry) profile.Clip) (clip profile.Clip) {
	defer func() {
		if p := recover(); p != nil {
			clip = profile.Clip{Path: audio.Printable(e.path), Error: fmt.Sprintf("defect of this library, please report it with the file: %v", p)}
		}
	}()
	return measure(e)
}

func measure(e entry) profile.Clip {
	if e.clip != nil {
		return checked(*e.clip)
	}
	if e.more != nil && e.more.by != nil {
		return e.more.by.measure(e)
	}
	clip := profile.Clip{Path: audio.Printable(e.path)}
	var info audio.Info
	var err error
	if e.data != nil {
		clip.SizeBytes = int64(len(*e.data))
		info, err = audio.Bytes(e.path, *e.data)
	} else {
		info, clip.SizeBytes, err = audio.File(e.path)
	}
	if err != nil {
		clip.Error = why(err)
		return clip
	}
	clip.DurationS, clip.ClaimedS = &info.DurationS, info.ClaimedS
	clip.SampleRate, clip.Channels, clip.Bits = info.SampleRate, info.Channels, info.Bits
	clip.Codec, clip.Method = info.Codec, info.Method
	return clip
}

// checked marks a known clip as bad when its duration cannot be.
func checked(clip profile.Clip) profile.Clip {
	clip.Path = audio.Printable(clip.Path)
	switch d := clip.DurationS; {
	case clip.Error != "":
	case d == nil:
		clip.Error = "its duration is not known"
	case math.IsNaN(*d) || math.IsInf(*d, 0) || *d <= 0, *d > maxClipS:
		clip.Error, clip.DurationS = fmt.Sprintf("has a duration of %v s", *d), nil
	}
	return clip
}

// why is the reason without the file's name, which stands beside it, and with the remedy where there is one.
func why(err error) string {
	f := fault.From(err)
	text := f.Message
	if cause := errors.Unwrap(f); cause != nil {
		text = cause.Error()
	}
	if f.Code == fault.Unsupported {
		text += "; " + f.Hint
	}
	return audio.Printable(text)
}
