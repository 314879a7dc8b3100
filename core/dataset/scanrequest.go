// Package dataset measures the clips of a speech dataset in parallel and sums them up. Nothing is
// decoded: durations come from core/audio. Bad files are counted and listed, the rest is used.
package dataset

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const maxWorkers = 64

// Request says what to scan. Exactly one of Folder, Paths, Manifest, Shards and Arrow is given.
type Request struct {
	// Folder is searched with its subfolders for files with an audio extension (audio.Extensions),
	// in the order of names. Linked files and folders are followed, each folder once, so that loops
	// end. Names that start with a dot are skipped: they are the droppings of editors, notebooks
	// and macOS ("._clip.wav"). A folder with wav.scp is one of Kaldi's. Of a folder without any
	// audio file the Parquet files are listed, which the caller reads (Result.Table), or else the
	// tar archives are shards.
	Folder string `json:"folder"`
	// Paths are files of any name, and folders, which are searched. A name with an audio extension
	// is taken for a file without looking, as a list may be long and its disk slow. A path that is
	// listed twice counts twice.
	Paths []string `json:"paths"`
	// Manifest is a list of paths: JSON lines (.jsonl, .json, .ndjson), .csv or .tsv. See
	// readManifest.
	Manifest string `json:"manifest"`
	// Shards are tar archives of audio (WebDataset), which are not unpacked. See shardPaths.
	Shards []string `json:"shards"`
	// Arrow is a column of a table in memory, which must stay unchanged until Scan returns.
	Arrow *Arrow `json:"-"`

	// Texts reads transcripts from a manifest, a Kaldi folder or shards. TextField names the
	// column, the field or the member's extension that holds it; without it, the first of
	// textColumns is taken.
	Texts     bool   `json:"texts"`
	TextField string `json:"text_field"`
	// AudioField names the column of a manifest that holds the paths; without it, the first of
	// audioColumns is taken.
	AudioField string `json:"audio_field"`
	// Splits are those of a manifest with a column "split" whose rows are wanted, and all rows
	// where none is of them; empty: all. A row without a split is of train.
	Splits []string `json:"splits"`
	// SplitFolders are the splits whose names folders begin with, as LibriSpeech's dev-clean with
	// dev: of a Folder that has such for Splits, or has no others, these alone are wanted, and a
	// list has the split of each file. Empty: none.
	SplitFolders []string `json:"split_folders"`
	// List lists the rows of a manifest with their texts and with these further Columns, or the
	// files of a folder, and measures nothing.
	List    bool     `json:"list"`
	Columns []string `json:"columns"`
	table   *Table

	Part *Part `json:"part"` // only this part of the source; absent: all
	// ≥ 1: this many, drawn at random without replacement; absent: all
	SampleSize *int `json:"sample_size"`
	Options

	Source     string `json:"source"`      // what to call it in the profile; "": a name is made here
	AllowEmpty bool   `json:"allow_empty"` // see Ending
}

// Progress may be read while Scan runs.
type Progress struct {
	Total atomic.Int64 // files to measure; 0 while they are still being listed
	Done  atomic.Int64 // measured, bad ones too
	Bad   atomic.Int64 // of them unusable
}

// Result is the sum and the parts.
type Result struct {
	Profile profile.Dataset
	Clips   *Clips    // every measured and every bad one, in source order
	Texts   []*string // what is said in each of them, nil where unknown; only with Request.Texts
	Table   *Table    // only with Request.List, or of a folder of Parquet files
}

// check refuses what cannot be meant, before anything is read.
func (r Request) check() error {
	sources := 0
	for _, given := range []bool{r.Folder != "", len(r.Paths) > 0, r.Manifest != "",
		len(r.Shards) > 0, r.Arrow != nil} {
		if given {
			sources++
		}
	}
	switch {
	case sources != 1:
		return fault.New(fault.InvalidArgument,
			"name a folder, a list of paths, a manifest, shards or a table",
			"%d sources given instead of one", sources)
	case r.List && r.Manifest == "" && r.Folder == "":
		return fault.New(fault.InvalidArgument, "name a folder or a manifest",
			"only the rows of a manifest and the files of a folder can be listed")
	case r.SampleSize != nil && *r.SampleSize < 1:
		return fault.New(fault.InvalidArgument, "use 1 or more, or leave it out for every file",
			"sample_size is %d", *r.SampleSize)
	case r.Part != nil && (r.Part.Index < 0 || r.Part.Index >= r.Part.Count ||
		r.Part.Count > maxParts):
		return fault.New(fault.InvalidArgument, "count from 0, and make at most 1000000 parts",
			"part %d of %d", r.Part.Index, r.Part.Count)
	case r.Part != nil && r.SampleSize != nil:
		return fault.New(fault.InvalidArgument,
			"scan the sample on one machine, or leave sample_size out",
			"sample_size given for a part of a source")
	}
	return r.Options.Check()
}

// list finds what there is to measure and gives the source a name.
func (r Request) list(ctx context.Context) (entries []entry, name string, err error) {
	switch {
	case r.Folder != "" && kaldiList(r.Folder) != "":
		entries, _, err = readManifest(ctx, kaldiList(r.Folder), r)
		name = "Kaldi folder " + r.Folder
	case r.Folder != "" && tableOf(r.Folder) != "":
		entries, name, err = readManifest(ctx, tableOf(r.Folder), r)
		name = "manifest " + name
		if fault.Is(err, fault.InvalidArgument) { // a table of something else
			entries, name, err = r.listFolder(ctx)
		}
	case r.Folder != "":
		entries, name, err = r.listFolder(ctx)
	case r.Manifest != "":
		entries, name, err = readManifest(ctx, r.Manifest, r)
		name = "manifest " + name
	case len(r.Shards) > 0:
		entries, err = listShards(ctx, r.Shards)
		name = "shards " + strings.Join(r.Shards[:min(3, len(r.Shards))], ", ")
	case len(r.Paths) > 0:
		entries, err = listPaths(ctx, r.Paths)
		name = "list of " + fault.Plural(len(r.Paths), "path")
	default:
		entries, err = r.Arrow.entries(ctx)
		name = "table of " + fault.Plural(len(entries), "row")
	}
	if r.Source != "" {
		name = r.Source
	}
	return entries, name, err
}

// listFolder lists the audio files of Folder; where it has none, the archives that hold some, or the
// Parquet files.
func (r Request) listFolder(ctx context.Context) (entries []entry, name string, err error) {
	name = "folder " + r.Folder
	if entries, err = listFolder(ctx, r.Folder); err != nil {
		return nil, "", err
	}
	if !slices.ContainsFunc(entries, func(e entry) bool { return !e.stray }) {
		// beside unpacked audio, archives are what it came from
		shards, tables, err := containersIn(ctx, r.Folder)
		if err != nil || len(tables) > 0 {
			return entriesOf(tables, entry{parquet: true}), "", err
		}
		entries = append(entries, entriesOf(shards, entry{archive: true})...)
	}
	if len(r.SplitFolders) > 0 {
		kept, only := r.ofSplits(entries)
		return kept, name + only, nil
	}
	return entries, name, nil
}
