// Command generate writes what repeats Go's declarations elsewhere: capi/layout.h, the ctypes
// structures and the records of the Python package, and the operations as JSON for its tests. It runs in the
// repository's root: make generate. With an argument it writes the reference of the operations
// alone, to that file: the site is built with it, and it is not kept in git. A value goes by
// reflection from core/api, a comment from the sources.
package main

import (
	"log"
	"os"
	"path/filepath"
)

func main() {
	write := generate
	if len(os.Args) > 1 {
		write = func(root string) (map[string][]byte, error) { return reference(root, os.Args[1]) }
	}
	files, err := write(".")
	if err != nil {
		log.Fatal(err)
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the text of each file, by its path.
func generate(root string) (map[string][]byte, error) {
	described, err := readContract(root)
	if err != nil {
		return nil, err
	}
	classes, err := described.pythonFiles()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for path, text := range classes {
		files[filepath.Join(root, path)] = text
	}
	for path, write := range map[string]func() ([]byte, error){
		"capi/layout.h": func() ([]byte, error) {
			return fill(headerText, readLayout(described.docs))
		},
		"capi/operations.json": described.json,
		"python/asrconfig_go/_core/_layout.py": func() ([]byte, error) {
			return fill(ctypesText, readLayout(described.docs))
		},
		"python/asrconfig_go/_core/declared.py": func() ([]byte, error) {
			return fill(declaredText, readDeclared())
		},
	} {
		if files[filepath.Join(root, path)], err = write(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// reference is the page of the operations, by the path that it is written to.
func reference(root, path string) (map[string][]byte, error) {
	described, err := readContract(root)
	if err != nil {
		return nil, err
	}
	text, err := fill(pageText, described)
	return map[string][]byte{path: text}, err
}
