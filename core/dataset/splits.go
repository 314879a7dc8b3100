package dataset

import (
	"maps"
	"path/filepath"
	"regexp"
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
	microphones := otherMicrophones(files)
	if !wanted && !complete {
		clear(splits)
		if len(microphones) == 0 {
			return files, ""
		}
	}
	for i := range files {
		if !files[i].stray {
			if name, other := microphones[files[i].path]; other {
				splits[i] = name
			}
			files[i].more = &detail{extra: []*string{&splits[i]}}
		}
	}
	if r.List {
		return files, ""
	}
	kept, only = keepSplits(files, r.Splits)
	if only != "" && !wanted {
		only = ", one microphone"
	}
	return kept, only
}

// microphone is the end of the name of one of several recordings of a sentence, as in VCTK 0.92.
var microphone = regexp.MustCompile(`_(mic\d+)\.\w+$`)

// otherMicrophones returns the microphones of the files that say what a file of the first one says.
// They are splits of their own: drawn clips would hold sentences that are trained on.
func otherMicrophones(files []entry) map[string]string {
	recordings, first := map[string]string{}, map[string]bool{}
	for _, e := range files {
		if at := microphone.FindStringSubmatchIndex(e.path); at != nil {
			name := e.path[at[2]:at[3]]
			recordings[e.path] = name
			first[e.path[:at[2]]] = first[e.path[:at[2]]] || name == "mic1"
		}
	}
	maps.DeleteFunc(recordings, func(path, name string) bool {
		return name == "mic1" || !first[path[:strings.LastIndex(path, name)]]
	})
	return recordings
}

// asides are words of names of folders that are no part of a dataset, as train_backup.
var asides = []string{"backup", "bak", "copy", "old", "orig", "tmp"}

// folderSplit returns the split that the name of a folder above a file begins with, as dev in
// LibriSpeech's dev-clean. Without one, named is false, and the split is the folder itself; it is
// of a folder that was put aside, too.
func (r Request) folderSplit(path string) (split string, named bool) {
	separator := string(filepath.Separator)
	path = strings.TrimPrefix(path, filepath.Clean(r.Folder)+separator)
	folders := strings.Split(path, separator)
	folders = folders[:len(folders)-1]
	for _, folder := range folders {
		words := strings.FieldsFunc(folder, func(c rune) bool { return strings.ContainsRune("-_.", c) })
		aside := slices.ContainsFunc(words, func(word string) bool { return slices.Contains(asides, word) })
		if aside {
			return folder, false
		}
		if len(words) > 0 && slices.Contains(r.SplitFolders, words[0]) {
			return words[0], true
		}
	}
	return strings.Join(folders[:min(1, len(folders))], ""), false
}
