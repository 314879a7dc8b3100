package dataset

import (
	"path/filepath"
	"slices"
	"strings"
)

// splitColumn has the split that a row belongs to; a row without one is of train.
const splitColumn = "split"

// keepSplits leaves out the entries of other splits, where some are of the wanted ones, and returns
// which are kept, after a comma.
func keepSplits(entries []entry, wanted []string) (kept []entry, only string) {
	isOther := func(e entry) bool {
		if e.more == nil || e.more.extra == nil {
			return false
		}
		split := e.more.extra[0]
		return split != nil && *split != "" && !slices.Contains(wanted, *split)
	}
	read := len(entries)
	if len(wanted) == 0 || !slices.ContainsFunc(entries, func(e entry) bool {
		return !e.stray && !isOther(e)
	}) {
		return entries, ""
	}
	if entries = slices.DeleteFunc(entries, isOther); len(entries) == read {
		return entries, ""
	}
	return entries, ", split " + wanted[0]
}

// ofSplits returns the files of Folder that are in folders of the wanted splits, and which these
// are, after a comma. A list keeps all, with their splits.
func (r Request) ofSplits(files []entry) (kept []entry, only string) {
	splits, complete, wanted := make([]string, len(files)), true, false
	for i := range files {
		if files[i].stray {
			continue
		}
		split, named := r.folderSplit(files[i].path)
		splits[i], complete = split, complete && named
		wanted = wanted || slices.Contains(r.Splits, split)
	}
	if !wanted && !complete {
		return files, ""
	}
	for i := range files {
		if !files[i].stray {
			files[i].more = &detail{extra: []*string{&splits[i]}}
		}
	}
	if r.List {
		return files, ""
	}
	return keepSplits(files, r.Splits)
}

// folderSplit returns the split that the name of a folder above a file begins with, as dev in
// LibriSpeech's dev-clean. Without one, named is false, and the split is the folder itself.
func (r Request) folderSplit(path string) (split string, named bool) {
	separator := string(filepath.Separator)
	path = strings.TrimPrefix(path, filepath.Clean(r.Folder)+separator)
	folders := strings.Split(path, separator)
	folders = folders[:len(folders)-1]
	for _, folder := range folders {
		end := strings.IndexAny(folder+".", "-_.")
		if split = folder[:end]; slices.Contains(r.SplitFolders, split) {
			return split, true
		}
	}
	return strings.Join(folders[:min(1, len(folders))], ""), false
}
