// Command generate writes what repeats Go's declarations elsewhere: capi/layout.h, the ctypes structures of the Python
// package, and the operations as JSON for its tests and as a page for people. It runs in the repository's root: make generate.
// A value goes by reflection from core/api, a comment from the sources.
package main

import (
	"log"
	"os"
	"path/filepath"
)

func main() {
	files, err := generate(".")
	if err != nil {
		log.Fatal(err)
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate gives the text of each file, by its path.
func generate(root string) (map[string][]byte, error) {
	said, err := readComments(root)
	if err != nil {
		return nil, err
	}
	described, err := readContract(said)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for path, write := range map[string]func() ([]byte, error){
		"capi/layout.h":                           func() ([]byte, error) { return fill(headerText, readLayout(said)) },
		"capi/operations.json":                    described.json,
		"capi/hints.json":                         func() ([]byte, error) { return readHints(root) },
		"docs/reference/operations.md":            func() ([]byte, error) { return fill(pageText, described) },
		"python/asrconfig_go/_base/_layout.py":    func() ([]byte, error) { return fill(ctypesText, readLayout(said)) },
		"python/asrconfig_go/_base/_row_words.py": func() ([]byte, error) { return fill(rowsText, readRows()) },
	} {
		if files[filepath.Join(root, path)], err = write(); err != nil {
			return nil, err
		}
	}
	return files, nil
}
