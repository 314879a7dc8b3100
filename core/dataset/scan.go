package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// entry is one thing to measure: a file by its path, a buffer, or a clip that is known already.
type entry struct {
	path string
	data *[]byte
	clip *profile.Clip
	// stray marks a fault met while listing, such as an unreadable subfolder or a bad line; clip
	// says what it is. It is always reported, and never drawn into a sample.
	stray bool
	// archive marks a file that stands for the audio files inside it: withMembers puts those in
	// its place.
	archive bool
	parquet bool // a table, which the caller reads
	// more is what the source says beside the path; nil for a plain file, of which there may be
	// millions.
	more *detail
}

// detail is what a source says of an entry beside its path.
type detail struct {
	text  *string   // what is said in the clip
	by    measurer  // nil for a whole file
	extra []*string // values of the further columns that a listing asks for
}

// measurer measures what is not a whole file: a piece of one, or a member of an archive. The row
// comes with the entry's path and is given the size.
type measurer interface {
	measure(r *row) (media.Info, error)
}

// texts returns the texts of the entries, nil for those of which the source has none.
func texts(entries []entry) []*string {
	all := make([]*string, len(entries))
	for i, e := range entries {
		if e.more != nil {
			all[i] = e.more.text
		}
	}
	return all
}

// stray makes the entry of a fault.
func stray(path, format string, args ...any) entry {
	clip := &profile.Clip{Path: path, Error: fault.Printable(fmt.Sprintf(format, args...))}
	return entry{stray: true, clip: clip}
}

// answered calls list, again where the storage does not answer.
func (r Request) answered(ctx context.Context) (entries []entry, source string, err error) {
	place := cmp.Or(r.Folder, r.Manifest, strings.Join(r.Shards[:min(1, len(r.Shards))], ""))
	err = media.Answered(place, func() (err error) {
		entries, source, err = r.list(ctx)
		return err
	})
	return entries, source, err
}

// Scan measures every clip of the source, or a sample, and sums them up. Errors are *fault.Error:
// InvalidArgument for a request that cannot be meant, NotFound for a missing folder or manifest,
// EmptyDataset when nothing is usable, Storage when a disk or a mount does not answer, Cancelled at
// most 100 ms after ctx ends. Scan then returns without waiting for reads in progress, except reads
// of a table in memory: the caller may free that.
func Scan(ctx context.Context, r Request, p *Progress) (Result, error) {
	if err := r.check(); err != nil {
		return Result{}, err
	}
	if r.List {
		return r.listed(ctx)
	}
	entries, source, err := r.answered(ctx)
	if err != nil {
		return Result{}, err
	}
	if len(entries) > 0 && entries[0].parquet {
		table := new(Table)
		table.fill(entries)
		return Result{Clips: new(Clips), Table: table}, nil
	}
	c := NewCollection(r.Options)
	if r.Part != nil {
		c.clips.listing = listing(entries)
		entries = r.Part.of(entries)
	}
	listed := entries
	if err = media.Answered("", func() (err error) {
		entries, err = withMembers(ctx, listed, &r)
		return err
	}); err != nil {
		return Result{}, err
	}
	r.Paths = nil // the entries have them
	picked, sample := subsample(entries, r.SampleSize, r.Seed)
	files := len(picked)
	if files >= manyFiles { // the deferred call restores the value that the inner one replaces
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	if err := c.measure(ctx, picked, p); err != nil {
		return Result{}, err
	}
	var transcripts []*string
	if r.Texts {
		transcripts = texts(picked)
	}
	// The rows have what the entries held: of a million files, their memory is needed for the sums.
	entries, listed, picked = nil, nil, nil //nolint:ineffassign
	result, err := c.sum(ctx, source, sample, r.AllowEmpty, r.Manifest != "")
	if err != nil { // perhaps cancelled, so memory is not given back first: that takes a while
		return Result{}, err
	}
	result.Texts = transcripts
	ReturnMemory(files)
	return result, nil
}

// listed returns the rows of a manifest as they are, or the files of a folder. Without a column of
// paths there are only the names of a manifest's columns.
func (r Request) listed(ctx context.Context) (Result, error) {
	r.Texts, r.table = true, &Table{wanted: r.Columns}
	entries, _, err := r.answered(ctx)
	if err != nil && !errors.Is(err, errNoColumn) {
		return Result{}, err
	}
	r.table.fill(entries)
	return Result{Clips: new(Clips), Table: r.table}, nil
}

// nothingUsable is the error of a source without a usable clip: it says what was looked for, or the
// reasons of the first bad files. byLine is for a manifest.
func nothingUsable(sum *profile.Dataset, byLine bool) error {
	if sum.BadCount == 0 {
		hint := "check the path; files with these extensions are looked for: " +
			strings.Join(audio.Extensions(), " ")
		if byLine {
			hint = "write one clip a line"
		}
		return fault.New(fault.EmptyDataset, hint, "no audio in %s", sum.Source)
	}
	var reasons []string
	for _, b := range sum.BadFiles[:min(3, len(sum.BadFiles))] {
		reasons = append(reasons, b.Path+": "+b.Error)
	}
	return fault.New(fault.EmptyDataset, "the first reasons: "+strings.Join(reasons, "; "),
		"no usable audio in %s: %s, none can be used",
		sum.Source, fault.Plural(sum.BadCount, "file"))
}

// cancelled returns the error of a scan whose context has ended; nil while it has not.
func cancelled(ctx context.Context, doing string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fault.Wrap(ctx.Err(), fault.Cancelled, "", "scan stopped while %s", doing)
}

// Subsample says what a draw stands for.
type Subsample struct {
	Drawn      int // clips that were drawn, with bad ones but without strays
	Population int // clips that they were drawn from
	// consecutive rows that were read of each shard of a stream; nil: clips were drawn one by one
	Shards []int
}

// subsample draws size entries at random without replacement and keeps their order. It returns all
// of them, with a nil Subsample, when size is absent or not smaller than their number. Strays are
// always kept and not counted.
func subsample(entries []entry, size *int, seed int64) ([]entry, *Subsample) {
	population := 0
	for _, e := range entries {
		if !e.stray {
			population++
		}
	}
	if size == nil || *size >= population {
		return entries, nil
	}
	// Selection sampling (Knuth, TAOCP 3.4.2, algorithm S): each is taken with the probability
	// wanted / remaining.
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	picked := make([]entry, 0, *size)
	remaining, wanted := population, *size
	for _, e := range entries {
		if e.stray {
			picked = append(picked, e)
			continue
		}
		if random.IntN(remaining) < wanted {
			picked = append(picked, e)
			wanted--
		}
		remaining--
	}
	return picked, &Subsample{Drawn: *size, Population: population}
}
