package dataset

import (
	"context"
	"hash/crc32"
	"runtime"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Collection gathers clips that come piece by piece: the rows of a table, of a stream. One
// goroutine at a time may use it, and none after a cancelled Add.
type Collection struct {
	options Options
	clips   *Clips
}

// NewCollection starts an empty one.
func NewCollection(o Options) *Collection { return &Collection{options: o, clips: new(Clips)} }

// Piece is some rows of a source: one by one, of a table, or of a page.
type Piece struct {
	Rows  []PieceRow `json:"-"` // in order
	Arrow *Arrow     `json:"-"` // of a table, unchanged until Add returns
	// Page is one of another scan, with its Columns: a scan of a Part elsewhere.
	Page    *Page  `json:"page"`
	Columns []byte `json:"-"`
}

// PieceRow is a clip, which is measured unless it has a duration or an error already.
type PieceRow struct {
	profile.Clip
	Data []byte // an encoded file in memory, unchanged until Add returns; nil: the file at Path
}

// Add measures a piece and appends its clips. Errors are InvalidArgument and Cancelled.
func (c *Collection) Add(ctx context.Context, piece *Piece, p *Progress) error {
	if piece.Page != nil {
		if err := c.clips.read(piece.Page, piece.Columns); err != nil {
			return err
		}
		p.Total.Add(int64(piece.Page.Count))
		p.Done.Add(int64(piece.Page.Count))
		p.Bad.Add(int64(len(piece.Page.Errors)))
		return nil
	}
	if piece.Arrow != nil {
		entries, err := piece.Arrow.entries(ctx)
		if err != nil {
			return err
		}
		return c.measure(ctx, entries, p)
	}
	return c.measure(ctx, piece.entries(), p)
}

// Finish sums up what was added. Errors are InvalidArgument, EmptyDataset and Cancelled.
func (c *Collection) Finish(ctx context.Context, e Ending) (Result, error) {
	sample, err := e.sample(c.clips.Len())
	if err != nil {
		return Result{}, err
	}
	return c.sum(ctx, e.Source, sample, e.AllowEmpty, false)
}

// Ending says what a finished collection stands for.
type Ending struct {
	Source string `json:"source"` // what to call it in the profile
	// of clips that the caller drew himself: how many there are in all
	Population *int `json:"population"`
	// the clips are such a draw; without Population nothing can be scaled
	Sampled bool `json:"sampled"`
	// rows that were read of each shard of a stream, one after the other; absent: drawn one by one
	Shards []int `json:"shards"`
	// nothing usable gives a profile of zeros instead of an error
	AllowEmpty bool `json:"allow_empty"`
}

// sample is what so many clips stand for; nil where they are all. Errors: InvalidArgument.
func (e Ending) sample(clips int) (sample *Subsample, err error) {
	if !e.Sampled && e.Population == nil {
		return sample, err
	}
	sample = &Subsample{Drawn: clips, Population: clips, Shards: e.Shards}
	if e.Population != nil {
		sample.Population = *e.Population
	}
	if sample.Population < clips {
		return nil, fault.New(fault.InvalidArgument,
			"population counts all clips, also those not given",
			"population is %d with %d clips given", sample.Population, clips)
	}
	read := 0
	for _, count := range e.Shards {
		if count < 0 || count > clips-read {
			return nil, shardsFault(count, clips)
		}
		read += count
	}
	if e.Shards != nil && read != clips {
		return nil, shardsFault(read, clips)
	}
	return sample, nil
}

func shardsFault(rows, clips int) error {
	return fault.New(fault.InvalidArgument, "pass the rows that were read of each shard",
		"shards have %d rows with %d clips given", rows, clips)
}

func (c *Collection) measure(ctx context.Context, entries []entry, p *Progress) error {
	withPieces(entries)
	have := len(c.clips.rows)
	rows := slices.Grow(c.clips.rows, len(entries))[:have+len(entries)]
	cache := openCache(c.options.Cache, files(entries))
	workers := c.options.workers(len(entries))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := measureAll(ctx, entries, rows[have:], workers, p, func() *reader {
		return &reader{Clips: c.clips, cache: cache.worker(), stop: stop}
	})
	if lost := c.clips.lost.Load(); lost != nil {
		return lost
	}
	if err != nil {
		return err
	}
	c.clips.rows = rows
	return nil
}

// files counts the entries that a cache can help with.
func files(entries []entry) (n int) {
	for i := range entries {
		if e := &entries[i]; e.clip == nil && e.data == nil && (e.more == nil || e.more.by == nil) {
			n++
		}
	}
	return n
}

func (c *Collection) sum(ctx context.Context, source string, sample *Subsample, allowEmpty,
	byLine bool) (Result, error) {
	if err := cancelled(ctx, "summing up"); err != nil {
		return Result{}, err
	}
	sum := Summarize(c.clips, fault.Printable(source), sample, c.options)
	if sum.MeasuredCount == 0 && !allowEmpty {
		return Result{}, nothingUsable(&sum, byLine)
	}
	return Result{Profile: sum, Clips: c.clips}, nil
}

// entries are the rows that come one by one.
func (p *Piece) entries() []entry {
	entries := make([]entry, len(p.Rows))
	for i := range p.Rows {
		row := &p.Rows[i]
		entries[i].path = row.Path
		if row.DurationS != nil || row.Error != "" {
			entries[i].clip = &row.Clip
		} else if row.Data != nil {
			entries[i].data = &row.Data
		}
	}
	return entries
}

// Options say how to measure.
type Options struct {
	Workers int `json:"workers"` // parallel reads, at most 64; 0: four for each usable core
	// of whole files; what is in memory or within larger files is measured again
	Cache Cache `json:"cache"`
	// BatchSize is the number of clips a batch, 1 to 65536, for what padding costs; 0 for 8.
	BatchSize int `json:"batch_size"`
	// what is measured: "clips", the default, or "texts", whose length the caller gives
	RowKind units.RowKind `json:"row_kind"`
	// of the draw of a sample and of shuffled batches; the same seed gives the same
	Seed int64 `json:"seed"`
}

// Check refuses what cannot be meant.
func (o Options) Check() error {
	if o.Workers < 0 {
		return fault.New(fault.InvalidArgument, "use 0 for four per usable core", "workers is %d",
			o.Workers)
	}
	if o.BatchSize < 0 || o.BatchSize > maxBatch {
		return fault.New(fault.InvalidArgument, "use 1 to 65536", "batch_size is %d", o.BatchSize)
	}
	if _, ok := units.Words[o.RowKind]; !ok && o.RowKind != "" {
		return fault.New(fault.InvalidArgument, "choose clips or texts", "row_kind is %q",
			o.RowKind)
	}
	return nil
}

// workers are four for each usable core when not told: most of a worker's time goes into waiting
// for the disk.
func (o Options) workers(files int) int {
	n := o.Workers
	if n == 0 {
		n = 4 * runtime.GOMAXPROCS(0)
	}
	return max(1, min(n, maxWorkers, files))
}

const maxParts = 1_000_000

// Part is one of Count parts of a source, equal in files or, of tar shards, in archives. Scans of
// all parts, on whatever machines, are put together by adding their pages in order (Piece.Page),
// with the result of one scan.
type Part struct {
	Index int `json:"index"` // from 0
	Count int `json:"count"`
}

func (p Part) of(entries []entry) []entry {
	n := len(entries)
	return entries[p.Index*n/p.Count : (p.Index+1)*n/p.Count]
}

// listing is a checksum of the names of entries, never 0: all parts must have divided the same
// list.
func listing(entries []entry) uint32 {
	sum := uint32(0)
	var name []byte
	for i := range entries {
		name = append(name[:0], entries[i].path...)
		if entries[i].clip != nil {
			name = append(name, entries[i].clip.Path...)
		}
		sum = crc32.Update(sum, castagnoli, append(name, 0))
	}
	return max(1, sum)
}

// sameListing refuses a page of a part that divided another list than the parts before.
func (c *Clips) sameListing(p *Page) error {
	if c.listing != 0 && p.Listing != c.listing {
		return fault.New(fault.Corrupt,
			"scan it again when nothing writes to it, with the same view of it on all machines",
			"the parts of the scan found different files: the source changed meanwhile, or "+
				"machines see it differently")
	}
	c.listing = p.Listing
	return nil
}
