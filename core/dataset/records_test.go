package dataset

import (
	"bytes"
	"context"
	stdcsv "encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// rowsOf lists a manifest: "path text", or "line: reason".
func rowsOf(t *testing.T, name, content string, r Request) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	r.Manifest, r.List = path, true
	result, err := Scan(context.Background(), r, new(Progress))
	require.NoError(t, err)
	var all []string
	for _, row := range result.Table.Rows {
		line := strings.TrimPrefix(row.Path, filepath.Dir(path)+"/")
		switch {
		case row.Error != "":
			line = strings.TrimPrefix(line, name+":") + ": " + row.Error
		case row.Text != nil:
			line += fmt.Sprintf(" %q", *row.Text)
		}
		if row.Piece {
			line += fmt.Sprintf(" %g+%g", row.Offset, row.Seconds)
		}
		all = append(all, line)
	}
	return all
}

func TestQuotationMarksInTables(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          []string
	}{
		"one never closed":                 {"m.csv", "path,text\na.wav,\"hello\nb.wav,two\nc.wav,three\n", []string{`a.wav "\"hello"`, `b.wav "two"`, `c.wav "three"`}},
		"one never closed in the last row": {"m.csv", "path,text\na.wav,one\nb.wav,\"two\n", []string{`a.wav "one"`, `b.wav "\"two"`}},
		"one before the path":              {"m.csv", "text,path\n\"hello,a.wav\ntwo,b.wav\n\"three\",c.wav\n", []string{`a.wav "\"hello"`, `b.wav "two"`, `c.wav "three"`}},
		"a pair over two rows":             {"m.csv", "path,text\na.wav,\"and then\nb.wav,he left\"\nc.wav,x\n", []string{`a.wav "\"and then"`, `b.wav "he left\""`, `c.wav "x"`}},
		"a pair around rows":               {"m.csv", "path,text\na.wav,\"and\nb.wav,then\nc.wav,\"he left\"\n", []string{`a.wav "\"and"`, `b.wav "then"`, `c.wav "he left"`}},
		"names without endings":            {"m.csv", "file|text\nLJ1-1|\"Hello\nLJ1-2|two words\nLJ1-3|\"three\"\n", []string{`LJ1-1 "\"Hello"`, `LJ1-2 "two words"`, `LJ1-3 "three"`}},
		"text behind a closed one":         {"m.csv", "path,text\na.wav,\"No\" he said\nb.wav,he said \"no\"\n", []string{`a.wav "\"No\" he said"`, `b.wav "he said \"no\""`}},
		"closed as it should be":           {"m.csv", "path,text\na.wav,\"he said \"\"no\"\", twice\"\nb.wav,\"\"\n", []string{`a.wav "he said \"no\", twice"`, `b.wav ""`}},
		"a text of several lines":          {"m.csv", "path,text\na.wav,\"one, two\nthree, four\n\nfive\"\nb.wav,x\n", []string{`a.wav "one, two\nthree, four\n\nfive"`, `b.wav "x"`}},
		"several lines before the path":    {"m.csv", "text,path\r\n\"one\r\ntwo\",a.wav\r\nx,b.wav\r\n", []string{`a.wav "one\ntwo"`, `b.wav "x"`}},
		"a text of several lines in .tsv":  {"m.tsv", "path\ttext\na.wav\t\"one\ntwo\"\nb.wav\t\"x\"\n", []string{`a.wav "one\ntwo"`, `b.wav "\"x\""`}},
		"Common Voice":                     {"m.tsv", "path\tsentence\na.mp3\t\"No,\" he said.\nb.mp3\t\"Quite.\"\nc.mp3\t\"Open\nd.mp3\tx\n", []string{`a.mp3 "\"No,\" he said."`, `b.mp3 "\"Quite.\""`, `c.mp3 "\"Open"`, `d.mp3 "x"`}},
		"a .tsv of pandas":                 {"m.tsv", "path\ttext\na.wav\t\"he said \"\"no\"\"\"\n", []string{`a.wav "he said \"no\""`}},
		"a .tsv with every field quoted":   {"m.tsv", "\"path\"\t\"text\"\n\"a.wav\"\t\"one\"\n", []string{`a.wav "one"`}},
		"commas in a last text":            {"m.csv", "path,text\na.wav,one, two\nb.wav,x,,\n", []string{`a.wav "one, two"`, `b.wav "x"`}},
		"commas in a text within":          {"m.csv", "path,text,who\na.wav,one, two,me\nb.wav,x,me,\n", []string{`2: has 4 fields in 3 columns: put texts with ',' in quotation marks`, `b.wav "x"`}},
		"semicolons":                       {"m.csv", "path;text\na.wav;one, two\nb.wav;\"x;y\"\n", []string{`a.wav "one, two"`, `b.wav "x;y"`}},
		"tabs":                             {"m.csv", "path\ttext\na.wav\tone, two; three\n", []string{`a.wav "one, two; three"`}},
		"spaces behind delimiters":         {"m.csv", "path, text\na.wav, one\nb.wav, \"two, three\"\n", []string{`a.wav "one"`, `b.wav "two, three"`}},
		"a mark of bytes, and no text":     {"m.csv", "\xef\xbb\xbf\"Path\",\"Text\"\r\n\"a.wav\"\r\n\"b.wav\",\r\n", []string{`a.wav`, `b.wav ""`}},
		"a piece":                          {"m.csv", "path,text,start,end\na.wav,x,1.5,2\na.wav,y,,\na.wav,z,3,2\n", []string{`a.wav "x" 1.5+0.5`, `a.wav "y"`, "4: a.wav: it selects 3 s to 2 s"}},
		"numbers": {"m.jsonl", `{"file_name":"a.wav","text":1984}
{"file_name":"b.wav","Text":-1.50}
{"file_name":"c.wav","text":null,"sentence":"s"}
{"audio":{"path":"d.wav","bytes":null},"text":true}`, []string{`a.wav "1984"`, `b.wav "-1.50"`, `c.wav "s"`, "d.wav"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, rowsOf(t, c.file, c.content, Request{}))
		})
	}
}

func TestColumnsByName(t *testing.T) {
	table := "id,clip,said,split\n1,a.wav,x,test\n"
	assert.Equal(t, []string{`a.wav "x"`}, rowsOf(t, "m.csv", table, Request{AudioField: "Clip", TextField: "said"}))
	assert.Equal(t, []string{`a.wav "x"`}, rowsOf(t, "m.jsonl", `{"clip":"a.wav","said":"x"}`, Request{AudioField: "clip", TextField: "said"}))
	audio, text := Columns()
	for _, name := range audio {
		assert.Equal(t, []string{"a.wav"}, rowsOf(t, "m.csv", "id,"+strings.ToUpper(name)+"\n1,a.wav\n", Request{}), name)
		assert.Equal(t, []string{"a.wav"}, rowsOf(t, "m.jsonl", `{"`+strings.ToUpper(name)+`":"a.wav"}`, Request{}), name)
	}
	for _, name := range text {
		assert.Equal(t, []string{`a.wav "x"`}, rowsOf(t, "m.csv", "path;"+name+"\na.wav;x\n", Request{}), name)
	}
}

func TestListingWithoutAColumnOfPaths(t *testing.T) {
	for name, content := range map[string]string{"m.csv": "id,words\n1,x\n", "m.jsonl": `{"id":1,"words":"x"}`} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		result, err := Scan(t.Context(), Request{Manifest: path, List: true}, new(Progress))
		require.NoError(t, err)
		assert.Equal(t, []string{"id", "words"}, result.Table.Columns)
		assert.Empty(t, result.Table.Rows)
	}
	_, err := Scan(t.Context(), Request{Paths: []string{"a.wav"}, List: true}, new(Progress))
	isFault(t, err, fault.InvalidArgument, "only the rows of a manifest")
}

func TestFoldersAreListed(t *testing.T) {
	folder := t.TempDir()
	listed := func(list bool) []string {
		result, err := Scan(t.Context(), Request{Folder: folder, List: list}, new(Progress))
		require.NoError(t, err)
		var names []string
		for _, row := range result.Table.Rows {
			names = append(names, filepath.Base(row.Path))
		}
		return names
	}
	for _, name := range []string{"deep/b.parquet", "a.parquet", ".c.parquet", "notes.txt", "x.tar"} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	assert.Equal(t, []string{"a.parquet", "b.parquet"}, listed(false), "which the caller reads")
	assert.Equal(t, []string{"a.parquet", "b.parquet"}, listed(true))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "deep", "z.wav"), nil, 0o600))
	assert.Equal(t, []string{"z.wav"}, listed(true), "audio goes before tables")
}

func TestListingGivesFurtherColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"path\":\"a.wav\",\"split\":\"dev\",\"words\":[{\"start\":1}]}\nno\n{\"path\":\"b.wav\"}\n"), 0o600))
	result, err := Scan(t.Context(), Request{Manifest: path, List: true, Columns: []string{"split", "words"}}, new(Progress))
	require.NoError(t, err)
	dev, words := "dev", `[{"start":1}]`
	rows := result.Table.Rows
	assert.Equal(t, []*string{&dev, &words}, rows[0].Extra)
	assert.Equal(t, "not a JSON object", rows[1].Error)
	assert.Equal(t, []*string{nil, nil}, rows[2].Extra)
}

func TestNamesWithoutEndings(t *testing.T) {
	root := tree(t, map[string][]byte{"wavs/LJ1.wav": wavOf(16000), "wavs/LJ2.wav": wavOf(16000), "m.csv": []byte("file|text\nLJ1|one\nLJ2|two\ngone|three\n")})
	assert.Equal(t, []string{`wavs/LJ1.wav 1.000 "one"`, `wavs/LJ2.wav 1.000 "two"`, "wavs/gone.wav: no such file"}, told(scan(t, Request{Manifest: root + "/m.csv", Texts: true}), root))
}

func TestTablesWithoutAHeader(t *testing.T) {
	root := tree(t, map[string][]byte{"wavs/LJ1.wav": wavOf(16000), "wavs/LJ2.wav": wavOf(16000), "metadata.csv": []byte("LJ1|in 1843, \"no\"|in eighteen, \"no\"\nLJ2|\"two\"|\"two\n")})
	want := []string{`wavs/LJ1.wav 1.000 "in eighteen, \"no\""`, `wavs/LJ2.wav 1.000 "\"two"`}
	for _, r := range []Request{{Folder: root, Texts: true}, {Manifest: root + "/metadata.csv", Texts: true}} {
		assert.Equal(t, want, told(scan(t, r), root))
	}
	named := tree(t, map[string][]byte{"audio/a.wav": wavOf(16000), "m.csv": []byte("audio|text\na.wav|one\n")})
	assert.Equal(t, []string{`audio/a.wav 1.000 "one"`}, told(scan(t, Request{Manifest: named + "/m.csv", Texts: true}), named))
}

func TestSplitsOfAManifest(t *testing.T) {
	files := map[string][]byte{"a.wav": wavOf(16000), "b.wav": wavOf(16000), "c.wav": wavOf(16000),
		"m.csv": []byte("path,split\na.wav,train\nb.wav,test\nc.wav,\n"), "tests.csv": []byte("path,split\na.wav,dev\nb.wav,test\n"), "all.csv": []byte("path\na.wav\n"),
		"m.jsonl": []byte("{\"path\":\"a.wav\",\"split\":\"train\"}\nbad\n{\"path\":\"b.wav\",\"split\":\"test\"}\n")}
	root := tree(t, files)
	for name, want := range map[string][]string{"m.csv": {"a.wav", "c.wav"}, "tests.csv": {"a.wav", "b.wav"}, "all.csv": {"a.wav"}, "m.jsonl": {"a.wav", "m.jsonl:2"}} {
		result := scan(t, Request{Manifest: filepath.Join(root, name), Splits: []string{"train"}})
		assert.Equal(t, want, names(result.Clips, root))
		assert.Equal(t, name[0] == 'm', strings.HasSuffix(result.Profile.Source, ", split train"))
	}
	_, err := Scan(context.Background(), Request{Manifest: tree(t, map[string][]byte{"m.csv": []byte("x,y\n1,2\n")}) + "/m.csv", Splits: []string{"train"}}, new(Progress))
	assert.ErrorContains(t, err, "has no column with paths")
}

func TestSplitsOfFolders(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  []string
		list  string
	}{
		"LibriSpeech":      {[]string{"L/dev-clean/1/a.wav", "L/train-100/1/b.wav", "L/train-360/c.wav"}, []string{"L/train-100/1/b.wav", "L/train-360/c.wav"}, "dev train train"},
		"beside others":    {[]string{"a.wav", "noise/b.wav", "train-100/c.wav"}, []string{"a.wav", "train-100/c.wav"}, " noise train"},
		"none to train on": {[]string{"dev-clean/a.wav", "test-clean/b.wav"}, []string{"dev-clean/a.wav", "test-clean/b.wav"}, "dev test"},
		"put aside":        {[]string{"train_backup/a.wav", "train-old/b.wav", "train/c.wav"}, []string{"train/c.wav"}, "train train-old train_backup"},
		"microphones":      {[]string{"p1/a_mic1.wav", "p1/a_mic2.wav", "p1/b_mic2.wav"}, []string{"p1/a_mic1.wav", "p1/b_mic2.wav"}, " mic2 "},
		"no splits":        {[]string{"ann/a.wav", "dev_bob/b.wav"}, []string{"ann/a.wav", "dev_bob/b.wav"}, "none none"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string][]byte{}
			for _, file := range c.files {
				files[file] = wavOf(16000)
			}
			request := Request{Folder: tree(t, files), Splits: []string{"train"}, SplitFolders: []string{"train", "dev", "test"}}
			result := scan(t, request)
			assert.Equal(t, c.want, names(result.Clips, request.Folder))
			only := ""
			if name == "microphones" {
				only = ", one microphone"
			} else if len(c.want) < len(c.files) {
				only = ", split train"
			}
			assert.Equal(t, "folder "+request.Folder+only, result.Profile.Source)
			request.List = true
			var splits []string
			for _, row := range scan(t, request).Table.Rows {
				split := "none"
				if row.Extra != nil {
					split = *row.Extra[0]
				}
				splits = append(splits, split)
			}
			assert.Equal(t, c.list, strings.Join(splits, " "))
		})
	}
}

func TestTheTableOfAFolder(t *testing.T) {
	files := map[string][]byte{"b.wav": wavOf(16000), "a.wav": wavOf(32000), "no.wav": wavOf(1), "metadata.csv": []byte("file_name,transcription\nb.wav,two\na.wav,one\n")}
	root := tree(t, files)
	assert.Equal(t, []string{`b.wav 1.000 "two"`, `a.wav 2.000 "one"`}, told(scan(t, Request{Folder: root, Texts: true}), root))
	files["metadata.csv"] = []byte("LJ1|no header|no header\n")
	assert.Len(t, told(scan(t, Request{Folder: tree(t, files)}), root), 3)
}

// FuzzRecords writes tables as they should be: all that is in them must come back.
func FuzzRecords(f *testing.F) {
	f.Add("one, \"two\"", "three\nfour", uint8(0))
	f.Add("\"", "\"\"", uint8(1))
	f.Add("a.wav,\"", "\n\"b.wav\"", uint8(2))
	f.Fuzz(func(t *testing.T, first, second string, delimiter uint8) {
		if text := first + second; strings.ContainsAny(text, "\r\x00") || strings.Contains(text, ".") || !utf8.ValidString(first) || !utf8.ValidString(second) {
			t.Skip() // a line end is read as one, and a line like a row is one
		}
		var b bytes.Buffer
		w := stdcsv.NewWriter(&b)
		w.Comma = rune(delimiters[delimiter%4])
		for _, record := range [][]string{{"path", "text", "who"}, {"a.wav", first, "me"}, {"b.wav", second, "you"}} {
			require.NoError(t, w.Write(record))
		}
		w.Flush()
		assert.Equal(t, []string{fmt.Sprintf("a.wav %q", first), fmt.Sprintf("b.wav %q", second)}, rowsOf(t, "m.csv", b.String(), Request{}))
	})
}

// FuzzNoRowIsSwallowed returns every row a text of any kind without line ends: there are as many
// rows as lines.
func FuzzNoRowIsSwallowed(f *testing.F) {
	f.Add(`"hello`, `and "this"`, `"x`)
	f.Add(`""`, `"`, `"""`)
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if text := a + b + c; strings.ContainsAny(text, "\r\n,") || !utf8.ValidString(a) || !utf8.ValidString(b) || !utf8.ValidString(c) {
			t.Skip()
		}
		rows := rowsOf(t, "m.csv", "path,text\na.wav,"+a+"\nb.wav,"+b+"\nc.wav,"+c+"\n", Request{})
		require.Len(t, rows, 3)
		for i, name := range []string{"a.wav", "b.wav", "c.wav"} {
			assert.True(t, strings.HasPrefix(rows[i], name+` "`), rows[i])
		}
	})
}

func TestPiecesNamedByFragments(t *testing.T) {
	root := tree(t, map[string][]byte{"talk.wav": wavOf(16000), "whole.wav#t=0,0.5": wavOf(3200)})
	talk := root + "/talk.wav"
	paths := []string{
		talk + "#t=0.25,0.75", talk, talk + "#t=0.9,1.5", talk + "#t=1.5,2", talk + "#t=0.5,0.25", talk + "#t=x,1",
		root + "/whole.wav#t=0,0.5", root + "/none.wav#t=0,1", talk + "#t=0,0.125", talk + "#t=NaN,1",
	}
	told := told(scan(t, Request{Paths: paths}), root)
	assert.Equal(t, []string{"talk.wav#t=0.25,0.75 0.500", "talk.wav 1.000"}, told[:2])
	assert.Contains(t, told[2], "0.100", "it ends behind the file")
	assert.Contains(t, told[3], "the row starts at 1.500 s, but the file ends at 1.000 s")
	assert.Contains(t, told[4], "the row asks for -0.25 s from 0.5 s on")
	assert.Contains(t, told[5], "talk.wav#t=x,1:")
	assert.Equal(t, "whole.wav#t=0,0.5 0.200", told[6], "a file that is called so")
	assert.Contains(t, told[7], "none.wav#t=0,1:")
	assert.Equal(t, "talk.wav#t=0,0.125 0.125", told[8])
	assert.Contains(t, told[9], "the row asks for NaN s from NaN s on")
}

func TestPiecesOfEmbeddedFiles(t *testing.T) {
	table := Arrow{Batches: []ArrowBatch{{Rows: 2, Bytes: binaryOf(32, 0, wavOf(16000), wavOf(8000)),
		Paths: binaryOf(32, 0, []byte("a.wav#t=0.5,1"), []byte("a.wav#t=0,0.25"))}}}
	assert.Equal(t, []string{"a.wav#t=0.5,1 0.500", "a.wav#t=0,0.25 0.250"}, told(scan(t, Request{Arrow: &table}), ""))
}
