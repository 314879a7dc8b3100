package dataset

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/parallel"
)

const maxShards = 100_000

var shardEndings = []string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"}

func isShard(name string) bool {
	if audio.HasExtension(name) { // nearly all
		return false
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(shardEndings, func(e string) bool {
		return strings.HasSuffix(name, e)
	})
}

// listShards lists the archives that patterns stand for (see shardPaths).
func listShards(ctx context.Context, patterns []string) (entries []entry, err error) {
	for _, pattern := range patterns {
		paths, err := shardPaths(ctx, pattern)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entriesOf(paths, entry{archive: true})...)
	}
	return entries, nil
}

// entriesOf are entries of paths, else like one.
func entriesOf(paths []string, like entry) []entry {
	entries := make([]entry, len(paths))
	for i, path := range paths {
		entries[i] = like
		entries[i].path = path
	}
	return entries
}

// shardPaths returns the archives of a path, of a folder of archives, of a pattern with *, ? and [
// ], and braces as in "shard-{000000..000012}.tar" or "{train,dev}.tar". One that is missing is
// given, too, and leaves a stray.
func shardPaths(ctx context.Context, pattern string) ([]string, error) {
	if strings.HasPrefix(pattern, "pipe:") || strings.Contains(pattern, "://") {
		return nil, fault.New(fault.Unsupported, "download the shards first",
			"%s is not on this disk", fault.Printable(pattern))
	}
	expanded, err := braces(pattern)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, path := range expanded {
		st, err := os.Stat(path)
		switch {
		case err == nil && st.IsDir():
			matches, _, err := containersIn(ctx, path)
			if err != nil {
				return nil, err
			}
			paths = append(paths, matches...)
		case err != nil && strings.ContainsAny(path, "*?["):
			matches, err := filepath.Glob(path)
			if err != nil || len(matches) == 0 {
				return nil, fault.New(fault.NotFound, "check the pattern", "no file matches %s",
					fault.Printable(path))
			}
			paths = append(paths, matches...)
		default:
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// containersIn finds the archives and the Parquet files of a folder and its subfolders, in the
// order of names.
func containersIn(ctx context.Context, folder string) (shards, tables []string, err error) {
	w := &walker{ctx: ctx, visited: make(map[string]bool), wanted: func(name string) bool {
		return isShard(name) || strings.HasSuffix(name, ".parquet")
	}}
	err = w.enter(filepath.Clean(folder))
	for _, e := range w.entries {
		switch {
		case e.stray: // an unreadable subfolder
		case isShard(e.path):
			shards = append(shards, e.path)
		default:
			tables = append(tables, e.path)
		}
	}
	return shards, tables, err
}

// braces expands "{000..012}" and "{a,b}", several too, but not nested.
func braces(pattern string) ([]string, error) {
	todo, done := []string{pattern}, []string(nil)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		end := strings.IndexByte(p, '}')
		start := strings.LastIndexByte(p[:max(end, 0)], '{')
		if start < 0 || end < 0 {
			done = append(done, p)
			continue
		}
		words, err := alternatives(p[start+1 : end])
		if err != nil || len(todo)+len(done)+len(words) > maxShards {
			return nil, fault.New(fault.InvalidArgument, "write {000000..000012} or {a,b}",
				"%s expands to more than %d files, or to none", fault.Printable(pattern), maxShards)
		}
		for _, word := range slices.Backward(words) {
			todo = append(todo, p[:start]+word+p[end+1:])
		}
	}
	return done, nil
}

// alternatives returns the words of one pair of braces; numbers keep the width of the first.
func alternatives(inside string) ([]string, error) {
	low, high, isRange := strings.Cut(inside, "..")
	if !isRange {
		return strings.Split(inside, ","), nil
	}
	from, errFrom := strconv.Atoi(low)
	to, errTo := strconv.Atoi(high)
	if errFrom != nil || errTo != nil || from < 0 || to < from || to-from >= maxShards {
		return nil, strconv.ErrRange
	}
	width := len(low)
	if low[0] != '0' {
		width = 0
	}
	var words []string
	for n := from; n <= to; n++ {
		words = append(words, fmt.Sprintf("%0*d", width, n))
	}
	return words, nil
}

// withMembers replaces the archives among entries by their members.
func withMembers(ctx context.Context, entries []entry, r *Request) ([]entry, error) {
	var archives []string
	for i := range entries {
		if entries[i].archive {
			archives = append(archives, entries[i].path)
		}
	}
	if archives == nil {
		return entries, nil
	}
	members, err := readShards(ctx, archives, r)
	if err != nil {
		return nil, err
	}
	var all []entry
	for i := range entries {
		if entries[i].archive {
			all, members = append(all, members[0]...), members[1:]
		} else {
			all = append(all, entries[i])
		}
	}
	return all, nil
}

// readShards lists the members of each archive, in parallel.
func readShards(ctx context.Context, paths []string, r *Request) ([][]entry, error) {
	members := make([][]entry, len(paths))
	err := parallel.By(r.workers(len(paths)), len(paths), func(i int) (err error) {
		if ctx.Err() == nil {
			members[i], err = guardedShard(ctx, paths[i], r)
		}
		return err
	})
	return members, cmp.Or(cancelled(ctx, "listing shards"), err)
}

// guardedShard turns a panic over one archive into a bad one.
func guardedShard(ctx context.Context, path string, r *Request) (entries []entry, lost error) {
	defer func() {
		if p := recover(); p != nil {
			entries = []entry{stray(path, defectOf, p)}
		}
	}()
	return readShard(ctx, path, r)
}
