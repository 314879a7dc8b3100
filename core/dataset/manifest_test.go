package dataset

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// listed reads a manifest of this name and content and shows its entries: the path within its folder, or "line: reason".
func listed(t *testing.T, name, content string) ([]string, error) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	entries, err := readManifest(context.Background(), path, Request{})
	var all []string
	for _, e := range entries {
		if e.stray {
			all = append(all, strings.TrimPrefix(e.clip.Path, path+":")+": "+e.clip.Error)
		} else {
			all = append(all, strings.TrimPrefix(e.path, folder+"/"))
		}
	}
	return all, err
}

func TestManifests(t *testing.T) {
	cases := []struct {
		name, content string
		want          []string
	}{
		{"nemo.json", `{"audio_filepath": "a.wav", "duration": 1.2, "text": "hi"}` + "\n" + `{"audio_filepath": "/abs/b.wav"}`, []string{"a.wav", "/abs/b.wav"}},
		{"m.jsonl", "\xef\xbb\xbf{\"path\":\"a.wav\"}\r\n\r\n  \n{\"file\":\"sub/b.wav\"}\r\n", []string{"a.wav", "sub/b.wav"}},
		{"first.ndjson", `{"path":"p.wav","audio":"a.wav","Filename":"f.wav"}`, []string{"a.wav"}},
		{"null.jsonl", `{"audio":null,"path":"p.wav"}`, []string{"p.wav"}},
		{"escapes.jsonl", `{"path":"\u00e4 \"x\".wav"}`, []string{`ä "x".wav`}},
		{"bad.jsonl", "{\"path\":\"a.wav\"}\nnot json\n{\"path\":3}\n{\"text\":\"x\"}\n{\"path\":\"\"}\n[1]\n{\"path\":\"b.wav\"}", []string{
			"a.wav", "2: not a JSON object", "3: its path is not text: 3",
			"4: has no field with a path, called audio_filepath, audio, path", `5: its path is not text: ""`, "6: not a JSON object", "b.wav"}},
		{"m.csv", "id,path,text\n1,a.wav,hi\n2,\"b, c.wav\",\"he said \"\"no\"\"\nand left\"\n\n3\n4,d.wav,x,y\n", []string{"a.wav", "b, c.wav", "6: has no path in column 2 of 1", "d.wav"}},
		{"crlf.csv", "\xef\xbb\xbfFile\r\na.wav\r\n", []string{"a.wav"}},
		{"quotes.csv", "path,text\na.wav,5\" disk\nb.wav,ok\n", []string{"a.wav", "b.wav"}},
		{"array.json", ` [{"path":"a.wav"},
{"path":3},{"file":"b.wav"}] `, []string{"a.wav", "2: its path is not text: 3", "b.wav"}},
		{"semicolons.csv", "id;path\n1;a.wav", []string{"a.wav"}},
		{"open_quote.csv", "path\n\"x\ny\n" + strings.Repeat("z", maxLine+1) + "\nw", []string{`"x`, "y", "4: line is longer than 16 MiB", "w"}},
		{"common_voice.tsv", "client_id\tpath\tsentence\nx\ta.mp3\t\"Hello\" he said\ny\tb.mp3\tit's 5\" wide\nz\n", []string{"a.mp3", "b.mp3", "4: has no path in column 2 of 1"}},
		{"quoted.tsv", "path\r\n\"a \"\"b\"\".wav\"\r\n", []string{`a "b".wav`}},
		{"up.csv", "path\n../x.wav\n./y.wav\n", []string{"../x.wav", "y.wav"}},
		{"only_header.csv", "path\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := listed(t, c.name, c.content)
			require.NoError(t, err)
			for i, w := range c.want {
				if strings.HasPrefix(w, "../") {
					got[i] = "../" + filepath.Base(got[i])
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestRefusedManifests(t *testing.T) {
	cases := []struct {
		name, content string
		code          fault.Code
		texts         []string
	}{
		{"m.xml", "a.wav", fault.Unsupported, []string{"none of the known extensions", ".jsonl"}},
		{"array.json", ` [{"path":"a.wav"}`, fault.Corrupt, []string{"JSON array cannot be read behind row 1", "one JSON object a line"}},
		{"more.json", `[{"path":"a.wav"}] {"path":"b.wav"}`, fault.Corrupt, []string{"JSON array cannot be read behind row 1"}},
		{"huge.json", `[{"path":"` + strings.Repeat("x", 2*maxLine) + `"}]`, fault.Corrupt, []string{"JSON array cannot be read behind row 0"}},
		{"macintosh.csv", "path\ra.wav\rb.wav\r", fault.Unsupported, []string{"CR alone"}},
		{"windows.csv", "path,text\na.wav,caf\xe9\n", fault.Corrupt, []string{"line 2: the text is not UTF-8 (byte 0xe9)", "iconv"}},
		{"windows.jsonl", "{\"path\":\"a.wav\",\"text\":\"ok\"}\n{\"path\":\"a.wav\",\"text\":\"caf\xe9\"}\n", fault.Corrupt, []string{"line 2: the text is not UTF-8"}},
		{"utf16.csv", "\xff\xfep\x00", fault.Unsupported, []string{"UTF-16"}},
		{"none.jsonl", `{"sound":"a.wav","text":"x"}`, fault.InvalidArgument, []string{`columns found: "sound", "text"`, "audio_filepath"}},
		{"none.csv", "id;sound\n1;a.wav", fault.InvalidArgument, []string{`columns found: "id", "sound"`}},
		{"none.tsv", "id,path\n1,a.wav", fault.InvalidArgument, []string{`columns found: "id,path"`}},
		{"binary.jsonl", strings.Repeat("\x00\x01\n", 2000), fault.Corrupt, []string{"first 1000 lines are bad", "not a JSON object"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := listed(t, c.name, c.content)
			isFault(t, err, c.code, append(c.texts, c.name)...)
		})
	}
	for _, missing := range []string{"/nowhere/m.csv", ""} {
		_, err := readManifest(context.Background(), missing, Request{})
		require.Error(t, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe.csv")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := readManifest(context.Background(), pipe, Request{})
	isFault(t, err, fault.NotFound, "not a regular file")
}

func TestLongAndDeepLines(t *testing.T) {
	long := `{"path":"a.wav","text":"` + strings.Repeat("x", 1<<20) + `"}`
	tooLong := `{"path":"b.wav","text":"` + strings.Repeat("x", maxLine) + `"}`
	deep := `{"path":` + strings.Repeat("[", 4<<20)
	got, err := listed(t, "m.jsonl", strings.Join([]string{long, tooLong, deep, `{"path":"c.wav"}`}, "\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a.wav", "2: line is longer than 16 MiB", "3: not a JSON object", "c.wav"}, got)
}

func TestManifestScan(t *testing.T) {
	root := tree(t, map[string][]byte{"wavs/a.wav": wavOf(16000), "list.csv": []byte("audio,text\nwavs/a.wav,x\nwavs/b.wav,y\nwavs/a.wav,z\n,\n")})
	result := scan(t, Request{Manifest: root + "/list.csv"})
	assert.Equal(t, []string{"wavs/a.wav", "wavs/b.wav", "wavs/a.wav", "list.csv:5"}, names(result.Clips, root))
	assert.Equal(t, 2, result.Profile.MeasuredCount)
	one := 1
	sampled := scan(t, Request{Manifest: root + "/list.csv", SampleSize: &one, Ending: Ending{AllowEmpty: true}}).Profile
	assert.Contains(t, fmt.Sprint(sampled.BadFiles), "list.csv:5", "bad lines are always told")
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{"path\na.wav\n", "{\"path\":\"a\"}\n{", "\xef\xbb\xbf", "\"", "path\t\"\n\"\"\t", "\xff\xfe"} {
		f.Add(uint8(0), []byte(s))
		f.Add(uint8(1), []byte(s))
		f.Add(uint8(2), []byte(s))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		path := filepath.Join(t.TempDir(), "m"+[]string{".jsonl", ".csv", ".tsv"}[kind%3])
		require.NoError(t, os.WriteFile(path, b, 0o600))
		entries, err := readManifest(context.Background(), path, Request{})
		if err != nil {
			assert.NotEqual(t, fault.Internal, fault.From(err).Code)
			return
		}
		assert.LessOrEqual(t, len(entries), bytes.Count(b, []byte("\n"))+1)
		for _, e := range entries {
			assert.True(t, e.stray && e.clip.Error != "" || !e.stray && filepath.IsAbs(e.path))
		}
	})
}
