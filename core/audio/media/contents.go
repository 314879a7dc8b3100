package media

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// ContentsLen is how many bytes Contents looks at.
const ContentsLen = 64

// others are what is found where audio was meant, by the first bytes.
var others = []struct{ magic, name string }{
	{"version https://git-lfs", "a Git LFS pointer (git lfs pull fetches the file)"},
	{"PK\x03\x04", "a ZIP archive"},
	{"\x1f\x8b", "compressed by gzip"},
	{"BZh", "compressed by bzip2"},
	{"\xfd7zXZ\x00", "compressed by xz"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd"},
	{"%PDF-", "a PDF document"},
	{"\x89PNG\r\n", "a PNG image"},
	{"\xff\xd8\xff", "a JPEG image"},
	{"GIF8", "a GIF image"},
	{"PAR1", "a Parquet file"},
	{"ARROW1", "an Arrow file"},
	{"\x93NUMPY", "a NumPy array"},
	{"\x7fELF", "a program"},
	{"SQLite format 3\x00", "an SQLite database"},
}

// Contents names what a file contains instead of audio, which often explains its origin. It never
// quotes the file: a list may name any file, and errors are shown, logged and sent on.
func Contents(head []byte) string {
	for _, o := range others {
		if strings.HasPrefix(string(head), o.magic) {
			return o.name
		}
	}
	text := strings.ToLower(string(bytes.TrimSpace(head)))
	switch {
	case strings.HasPrefix(text, "<!doctype html"), strings.HasPrefix(text, "<html"):
		return "an HTML page, as a failed download leaves"
	case len(bytes.Trim(head, "\x00")) == 0:
		return "zeros, as an unfinished download leaves"
	case isText(head):
		return "text"
	}
	return "of no known format"
}

// isText also takes a last character that was cut.
func isText(head []byte) bool {
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 && utf8.FullRune(head) ||
			r < ' ' && !strings.ContainsRune("\t\r\n\f", r) {
			return false
		}
		head = head[n:]
	}
	return true
}

// NotAudio is the error of a source without audio.
func NotAudio(s *File) error {
	return Corrupt("is not audio: its content is %s", Contents(s.At(0, ContentsLen)))
}
