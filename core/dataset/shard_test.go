package dataset

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// tarOf makes an archive of (name, content) pairs; the format is chosen by what the names need.
func tarOf(t testing.TB, format tar.Format, members ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		content := members[i+1].([]byte)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: members[i].(string), Mode: 0o600, Size: int64(len(content)), Format: format}))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestShards(t *testing.T) {
	long := strings.Repeat("deep/", 60) + strings.Repeat("x", 120) + ".wav"
	var odd bytes.Buffer
	w := tar.NewWriter(&odd)
	for _, h := range []tar.Header{{Name: "d/", Typeflag: tar.TypeDir}, {Name: "l.wav", Typeflag: tar.TypeSymlink, Linkname: "x"},
		{Name: "h.wav", Typeflag: tar.TypeLink, Linkname: "x"}, {Name: "e.wav", Typeflag: tar.TypeReg}, {Name: "._a.wav", Typeflag: tar.TypeReg}} {
		require.NoError(t, w.WriteHeader(&h))
	}
	require.NoError(t, w.Close())
	sparse := tarOf(t, tar.FormatGNU, "s.wav", wavOf(100))
	sparse[156] = tar.TypeGNUSparse
	sum := 0
	copy(sparse[148:156], "        ")
	for _, c := range sparse[:512] {
		sum += int(c)
	}
	copy(sparse[148:156], fmt.Sprintf("%06o\x00 ", sum))
	said := tarOf(t, tar.FormatUnknown, "k1.wav", wavOf(1600), "k1.txt", []byte(" one two\n"), "./sub/k1.json", []byte(`{"text":"sub"}`), "./sub/k1.left.wav", wavOf(1600),
		"k2.json", []byte(`{"transcript":"json","words":"w"}`), "k2.txt", []byte("txt"), "k2.cls", []byte("3"), "k2.wav", wavOf(1600), "k3.wav", wavOf(1600), "k3.json", []byte("{"))
	cases := []struct {
		name  string
		files map[string][]byte
		r     Request
		want  []string
	}{
		{"one", map[string][]byte{"a.tar": tarOf(t, tar.FormatUSTAR, "1.wav", wavOf(16000), "1.txt", []byte("x"), "2.WAV", wavOf(8000), "3.wav", []byte("text"))},
			Request{Shards: []string{"a.tar"}}, []string{"a.tar/1.wav 1.000", "a.tar/2.WAV 0.500", `a.tar/3.wav: is not audio: its content is text`}},
		{"GNU and PAX names", map[string][]byte{"a.tar": tarOf(t, tar.FormatGNU, long, wavOf(1600)), "b.tar": tarOf(t, tar.FormatPAX, "grün/"+long, wavOf(3200))},
			Request{Shards: []string{"*.tar"}}, []string{"a.tar/" + long + " 0.100", "b.tar/grün/" + long + " 0.200"}},
		{"braces", map[string][]byte{"s-08.tar": tarOf(t, tar.FormatUSTAR, "a.wav", wavOf(1600)), "s-10.tar": tarOf(t, tar.FormatUSTAR, "a.wav", wavOf(3200))},
			Request{Shards: []string{"s-{08..10}.tar"}}, []string{"s-08.tar/a.wav 0.100", "s-09.tar: no such file or directory", "s-10.tar/a.wav 0.200"}},
		{"a folder of shards", map[string][]byte{"x/b.tar": tarOf(t, tar.FormatUSTAR, "a.wav", wavOf(1600)), "x/.c.tar": []byte("x"), "note.txt": nil},
			Request{Folder: "."}, []string{"x/b.tar/a.wav 0.100"}},
		{"shards beside what they unpack to", map[string][]byte{"b.tar": tarOf(t, tar.FormatUSTAR, "a.wav", wavOf(1600)), "a.wav": wavOf(1600)},
			Request{Folder: "."}, []string{"a.wav 0.100"}},
		{"archives beside a table of something else", map[string][]byte{"b.tar": tarOf(t, tar.FormatUSTAR, "a.wav", wavOf(1600)), "metadata.csv": []byte("id,speaker\n1,2\n")},
			Request{Folder: "."}, []string{"b.tar/a.wav 0.100"}},
		{"among paths", map[string][]byte{"b.tar": tarOf(t, tar.FormatUSTAR, "a.wav", wavOf(1600)), "a.wav": wavOf(1600)},
			Request{Paths: []string{"a.wav", "b.tar"}}, []string{"a.wav 0.100", "b.tar/a.wav 0.100"}},
		{"odd members", map[string][]byte{"o.tar": odd.Bytes(), "s.tar": sparse, "empty.tar": nil, "text.tar": []byte("hello, this is no archive"), "pack.tar.gz": gzipped(t, "x")},
			Request{Shards: []string{"{o,s,empty,text}.tar", "pack.tar.gz"}}, []string{
				"o.tar/l.wav: is a link or not a file; make the archive again with --hard-dereference --dereference", "o.tar/h.wav: is a link or not a file; make the archive again with --hard-dereference --dereference",
				"o.tar/e.wav: is empty", "s.tar/s.wav: is stored with holes (GNU sparse); make the archive again without --sparse",
				`text.tar: is not a tar archive: its content is text`,
				"pack.tar.gz: is compressed by gzip; unpack it once: audio hardly compresses"}},
		{"what is said", map[string][]byte{"a.tar": said}, Request{Shards: []string{"a.tar"}, Texts: true}, []string{
			`a.tar/k1.wav 0.100 "one two"`, `a.tar/sub/k1.left.wav 0.100 "sub"`, `a.tar/k2.wav 0.100 "txt"`, "a.tar/k3.wav 0.100"}},
		{"said in a member of this name", map[string][]byte{"a.tar": said}, Request{Shards: []string{"a.tar"}, Texts: true, TextField: "cls"}, []string{
			"a.tar/k1.wav 0.100", "a.tar/sub/k1.left.wav 0.100", `a.tar/k2.wav 0.100 "3"`, "a.tar/k3.wav 0.100"}},
		{"said in a field of this name", map[string][]byte{"a.tar": said}, Request{Shards: []string{"a.tar"}, Texts: true, TextField: "words"}, []string{
			"a.tar/k1.wav 0.100", "a.tar/sub/k1.left.wav 0.100", `a.tar/k2.wav 0.100 "w"`, "a.tar/k3.wav 0.100"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.files)
			for _, list := range [][]string{c.r.Shards, c.r.Paths} {
				for i := range list {
					list[i] = filepath.Join(root, list[i])
				}
			}
			if c.r.Folder != "" {
				c.r.Folder = root
			}
			c.r.AllowEmpty = true
			assert.Equal(t, c.want, told(scan(t, c.r), root))
		})
	}
}

func TestRefusedShards(t *testing.T) {
	root := t.TempDir()
	for pattern, code := range map[string]fault.Code{
		"pipe:cat a.tar": fault.Unsupported, "s3://bucket/{0..1}.tar": fault.Unsupported, root + "/*.tar": fault.NotFound, root + "/[.tar": fault.NotFound,
		"{0..99999999999}.tar": fault.InvalidArgument, "{9..1}.tar": fault.InvalidArgument, "{a..b}.tar": fault.InvalidArgument, "{0..99999}{0..99999}.tar": fault.InvalidArgument,
	} {
		_, err := Scan(context.Background(), Request{Shards: []string{pattern}}, new(Progress))
		isFault(t, err, code)
	}
	_, err := Scan(context.Background(), Request{Shards: []string{root}}, new(Progress))
	isFault(t, err, fault.EmptyDataset, "no audio in shards")
}

func TestBraces(t *testing.T) {
	for pattern, want := range map[string][]string{
		"a": {"a"}, "{a,b}{0..1}": {"a0", "a1", "b0", "b1"}, "s{8..10}": {"s8", "s9", "s10"}, "s{008..010}": {"s008", "s009", "s010"}, "}{": {"}{"}, "{a": {"{a"},
	} {
		got, err := braces(pattern)
		require.NoError(t, err, pattern)
		assert.ElementsMatch(t, want, got, pattern)
	}
}

// TestTruncatedShards: whatever the cut, every member that is whole is measured, and every cut is
// told.
func TestTruncatedShards(t *testing.T) {
	whole := tarOf(t, tar.FormatGNU, "a.wav", wavOf(100), "b.txt", []byte("b"), strings.Repeat("n", 150)+".wav", wavOf(20))
	path := filepath.Join(t.TempDir(), "t.tar")
	for n := range len(whole) - 1024 {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		result := scan(t, Request{Shards: []string{path}, AllowEmpty: true})
		if n >= 512+44+200 {
			require.Positive(t, result.Clips.Len(), n)
			require.Equal(t, 100.0/16000, *result.Clips.At(0).DurationS, n)
		}
		if n > 0 {
			require.NotEmpty(t, result.Profile.BadFiles, n)
		}
	}
}

func FuzzShard(f *testing.F) {
	f.Add(tarOf(f, tar.FormatGNU, strings.Repeat("n", 150)+".wav", wavOf(10), "b.txt", []byte("b"), "b.json", []byte(`{"text":"x"}`)))
	f.Add(tarOf(f, tar.FormatPAX, strings.Repeat("ü", 90)+".wav", wavOf(10)))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "f.tar")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		entries, err := readShard(context.Background(), path, &Request{Texts: true})
		require.NoError(t, err)
		assert.LessOrEqual(t, len(entries), len(b)/512+1)
		for _, e := range entries {
			if clip := measureOne(e); clip.Error == "" {
				assert.Positive(t, *clip.DurationS)
				assert.LessOrEqual(t, clip.SizeBytes, int64(1)<<62)
			}
		}
	})
}
