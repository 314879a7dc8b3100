// Package dataset measures the clips of a speech dataset in parallel and sums them up. Nothing is
// decoded: durations come from core/audio. Bad files are counted and listed, the rest is used.
package dataset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// maxWorkers bounds the parallel reads.
const maxWorkers = 64

// Request says what to scan. Exactly one of Folder, Paths, Manifest, Shards, Buffers, Arrow and
// Clips is given.
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
	// Buffers are encoded files in memory, which must stay unchanged until Scan returns.
	Buffers []Buffer `json:"-"`
	// Arrow is a column of a table in memory, which must stay unchanged until Scan returns.
	Arrow *Arrow `json:"-"`
	// Clips are known already, arrays for example, and only summed up.
	Clips []profile.Clip `json:"clips"`

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

	Ending // without a source, a name is made here
}

// Extensions are those of the files that a folder is searched for, lower case with their dot.
func Extensions() []string { return audio.Extensions() }

// Buffer is one encoded file in memory.
type Buffer struct {
	Name string
	Data []byte
}

// Progress may be read while Scan runs.
type Progress struct {
	Total atomic.Int64 // files to measure; 0 while they are still being listed
	Done  atomic.Int64 // measured, bad ones too
	Bad   atomic.Int64 // of them unusable
}

// add counts clips that came measured.
func (p *Progress) add(clips, bad int) {
	p.Total.Add(int64(clips))
	p.Done.Add(int64(clips))
	p.Bad.Add(int64(bad))
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
	count, empty := r.sources()
	switch {
	case count > 1:
		return fault.New(fault.InvalidArgument, "scan them one after another",
			"%d sources given instead of one of folder, paths, manifest, shards, buffers, clips",
			count)
	case count == 0 && empty != "" && !r.AllowEmpty:
		return fault.New(fault.EmptyDataset, "check how the list was made",
			"the list of %s is empty", empty)
	case count == 0 && empty == "":
		return fault.New(fault.InvalidArgument,
			"name a folder, a list of paths, a manifest, shards, buffers or clips",
			"no source given")
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
	case r.Population != nil && (r.Clips == nil || *r.Population < len(r.Clips)):
		return fault.New(fault.InvalidArgument, "population counts all clips, also those not given",
			"population is %d with %d clips given", *r.Population, len(r.Clips))
	case r.SampleSize != nil && (r.Sampled || r.Population != nil):
		return fault.New(fault.InvalidArgument, "leave sample_size out",
			"sample_size given for clips that are a sample already")
	}
	return r.Options.Check()
}

// sources counts the sources that say something, and names a list that was given but is empty.
func (r Request) sources() (count int, empty string) {
	for _, s := range []struct {
		name     string
		there    bool
		elements int
	}{
		{"folder", r.Folder != "", 1}, {"paths", r.Paths != nil, len(r.Paths)},
		{"manifest", r.Manifest != "", 1},
		{"shards", r.Shards != nil, len(r.Shards)}, {"buffers", r.Buffers != nil, len(r.Buffers)},
		{"arrow", r.Arrow != nil, 1}, {"clips", r.Clips != nil, len(r.Clips)},
	} {
		if s.there && s.elements > 0 {
			count++
		} else if s.there {
			empty = s.name
		}
	}
	return count, empty
}

// list finds what there is to measure and gives the source a name.
func (r Request) list(ctx context.Context) (entries []entry, name string, err error) {
	switch {
	case r.Folder != "" && kaldiList(r.Folder) != "":
		entries, _, err = readManifest(ctx, kaldiList(r.Folder), r)
		name = fmt.Sprintf("Kaldi folder %s", r.Folder)
	case r.Folder != "" && tableOf(r.Folder) != "":
		entries, name, err = readManifest(ctx, tableOf(r.Folder), r)
		name = "manifest " + name
		if err != nil && fault.From(err).Code == fault.InvalidArgument {
			// a table of something else
			entries, err = listFolder(ctx, r.Folder)
			name = fmt.Sprintf("folder %s", r.Folder)
		}
	case r.Folder != "":
		entries, err = listFolder(ctx, r.Folder)
		if err == nil && !slices.ContainsFunc(entries, func(e entry) bool { return !e.stray }) {
			// beside unpacked audio, archives are what it came from
			var shards, tables []string
			if shards, tables, err = containersIn(ctx, r.Folder); len(tables) > 0 {
				return entriesOf(tables, entry{parquet: true}), "", err
			}
			entries = append(entries, entriesOf(shards, entry{archive: true})...)
		}
		name = fmt.Sprintf("folder %s", r.Folder)
		if err == nil && len(r.SplitFolders) > 0 {
			var only string
			entries, only = r.ofSplits(entries)
			name += only
		}
	case r.Manifest != "":
		entries, name, err = readManifest(ctx, r.Manifest, r)
		name = "manifest " + name
	case len(r.Shards) > 0:
		entries, err = listShards(ctx, r.Shards)
		name = "shards " + strings.Join(r.Shards[:min(3, len(r.Shards))], ", ")
	case len(r.Paths) > 0:
		entries, err = listPaths(ctx, r.Paths)
		name = fmt.Sprintf("list of %s", fault.Plural(len(r.Paths), "path"))
	case r.Arrow != nil:
		entries, err = r.Arrow.entries(ctx)
		name = fmt.Sprintf("table of %s", fault.Plural(len(entries), "row"))
	case len(r.Buffers) > 0:
		for i := range r.Buffers {
			entries = append(entries, entry{path: r.Buffers[i].Name, data: &r.Buffers[i].Data})
		}
		name = fault.Plural(len(r.Buffers), "buffer")
	default:
		for i := range r.Clips {
			entries = append(entries, entry{path: r.Clips[i].Path, clip: &r.Clips[i]})
		}
		name = fault.Plural(len(r.Clips), "clip")
	}
	if r.Source != "" {
		name = r.Source
	}
	return entries, name, err
}
