package dataset

import (
	"context"
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// entry is one thing to measure: a file by its path, a buffer, or a clip that is known already.
type entry struct {
	path string
	data *[]byte
	clip *profile.Clip
	// stray is a fault met while listing, an unreadable subfolder or a bad line, with its clip saying why. It is always
	// reported, and never drawn into a sample.
	stray  bool
	listed bool // its folder says that it is a regular file
	// archive says that the audio files inside are meant, which withMembers puts in its place.
	archive bool
	// more is what the source says beside the path; nil for a plain file, of which there may be millions.
	more *detail
}

// detail is what a manifest or an archive says of one clip.
type detail struct {
	text *string  // what is said in it
	by   measurer // nil for a whole file
}

// measurer measures what is no whole file: a piece of one, or a member of an archive.
type measurer interface {
	measure(e entry) profile.Clip
}

// texts are those of the entries, nil where the source has none.
func texts(entries []entry) []*string {
	all := make([]*string, len(entries))
	for i, e := range entries {
		if e.more != nil {
			all[i] = e.more.text
		}
	}
	return all
}

func stray(path, format string, args ...any) entry {
	text := fmt.Sprintf(format, args...)
	return entry{stray: true, clip: &profile.Clip{Path: path, Error: fault.Printable(text)}}
}

// Scan measures every clip of the source, or a sample, and sums them up. p may be nil.
// Errors are *fault.Error: InvalidArgument for a request that cannot be meant, NotFound for a missing folder or manifest,
// EmptyDataset when nothing is usable, Cancelled at most 100 ms after ctx ends: reads in flight are left behind then, except
// of buffers, which the caller may free.
func Scan(ctx context.Context, r Request, p *Progress) (Result, error) {
	if err := r.check(); err != nil {
		return Result{}, err
	}
	entries, source, err := r.list(ctx)
	if err != nil {
		return Result{}, err
	}
	c := NewCollection(r.Options)
	if r.Part != nil {
		c.clips.listing = listing(entries)
		entries = r.Part.of(entries)
	}
	if entries, err = withMembers(ctx, entries, &r); err != nil {
		return Result{}, err
	}
	r.Paths = nil // the entries have them
	picked, sample := subsample(entries, r.SampleSize, r.Seed)
	files := len(picked)
	defer limitGC(files)()
	if err := c.measure(ctx, picked, p); err != nil {
		return Result{}, err
	}
	var said []*string
	if r.Texts {
		said = texts(picked)
	}
	entries, picked = nil, nil //nolint:ineffassign // the rows have them; the memory of a million is free
	if r.Sampled || r.Population != nil {
		if sample, err = r.sample(c.clips.Len()); err != nil {
			return Result{}, err
		}
	}
	result, err := c.sum(ctx, source, sample, r.AllowEmpty, r.Manifest != "")
	if err != nil { // perhaps cancelled: giving memory back takes a while
		return Result{}, err
	}
	result.Texts = said
	ReturnMemory(files)
	return result, nil
}

// nothingUsable says what was looked for, or the first reasons.
func nothingUsable(sum *profile.Dataset, byLine bool) error {
	if sum.BadCount == 0 {
		hint := "check the path; files with these extensions are looked for: " + strings.Join(audio.Extensions(), " ")
		if byLine {
			hint = "write one clip a line"
		}
		return fault.New(fault.EmptyDataset, hint, "no audio in %s", sum.Source)
	}
	var reasons []string
	for _, b := range sum.BadFiles[:min(3, len(sum.BadFiles))] {
		reasons = append(reasons, b.Path+": "+b.Error)
	}
	return fault.New(fault.EmptyDataset, "the first reasons: "+strings.Join(reasons, "; "), "no usable audio in %s: %s, none can be used",
		sum.Source, fault.Plural(sum.BadCount, "file"))
}

// cancelled is the error after ctx has ended.
func cancelled(ctx context.Context, doing string) error {
	return fault.Wrap(ctx.Err(), fault.Cancelled, "", "scan stopped while %s", doing)
}
