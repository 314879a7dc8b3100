package dataset

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Kaldi's data folders (kaldi-asr.org/doc/data_prep.html) hold keyed tables: wav.scp has the file
// of each recording, segments the utterances within recordings, utt2dur and reco2dur their seconds,
// and text their transcripts.

// onlyReads matches a command that only reads a file: "cat a.wav |", or "flac -c -d -s a.flac |".
var onlyReads = regexp.MustCompile(`^(?:cat|flac(?:\s+-[cds]+)*)\s+([^\s|-][^\s|]*)\s*\|$`)

// kaldiList returns the file of a Kaldi data folder that lists its clips, "" for another folder.
func kaldiList(folder string) string {
	recordings, segments := filepath.Join(folder, "wav.scp"), filepath.Join(folder, "segments")
	switch {
	case !isRegular(recordings):
		return ""
	case isRegular(segments):
		return segments
	}
	return recordings
}

func isRegular(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// keyed splits a line of a table at its first blank into its key and its value.
func keyed(line []byte) (key, value string) {
	text := strings.TrimSpace(string(line))
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], strings.TrimSpace(text[i:])
	}
	return text, ""
}

// table returns the rows of a keyed table beside the manifest, which is read once; none where there
// is no such file.
func (m *manifest) table(name string) (map[string]string, error) {
	if rows := m.tables[name]; rows != nil {
		return rows, nil
	}
	rows, path := map[string]string{}, filepath.Join(m.folder, name)
	m.tables[name] = rows
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return rows, nil
	}
	t, err := openManifest(m.ctx, path)
	if err != nil {
		return nil, err
	}
	defer t.file.Close()
	return rows, t.eachLine(func(_ int, line []byte) error {
		key, value := keyed(line)
		rows[key] = value
		return nil
	})
}

// scp reads wav.scp: "recording path" or "recording command |".
func (m *manifest) scp() error {
	return m.eachLine(func(number int, line []byte) error {
		key, value := keyed(line)
		if value == "" {
			return m.bad(number, "has no path after the name of its recording")
		}
		return m.addRecording(number, key, value, mention{})
	})
}

// segments reads "utterance recording start end" in seconds; an end of -1 is the recording's.
func (m *manifest) segments() error {
	recordings, err := m.table("wav.scp")
	if err != nil {
		return err
	}
	return m.eachLine(func(number int, line []byte) error {
		fields := strings.Fields(string(line))
		if len(fields) < 4 {
			return m.bad(number, "has %s instead of utterance, recording, start and end",
				fault.Plural(len(fields), "field"))
		}
		start, errStart := strconv.ParseFloat(fields[2], 64)
		end, errEnd := strconv.ParseFloat(fields[3], 64)
		if errStart != nil || errEnd != nil || !(start >= 0) || !(end > start || end == -1) ||
			math.IsInf(end, 0) {
			return m.bad(number, "its start and end are not valid seconds")
		}
		source := recordings[fields[1]]
		if source == "" {
			return m.bad(number, "wav.scp does not have its recording")
		}
		return m.addRecording(number, fields[0], source,
			mention{cut: true, offset: start, seconds: max(0, end-start)})
	})
}

// addRecording adds a clip, or the piece of it that r selects, whose source is an extended filename
// of Kaldi's. Commands are not run: their seconds are those of the segment, or of utt2dur, unless
// all that they do is read a file.
func (m *manifest) addRecording(number int, key, source string, r mention) (err error) {
	source = onlyReads.ReplaceAllString(source, "$1")
	if r.text, err = m.transcript(key); err != nil {
		return err
	}
	switch path, offset, inArchive := splitArk(source); {
	case strings.HasSuffix(source, "|"):
		if r.seconds == 0 {
			if r.seconds, err = m.duration(key); err != nil {
				return err
			}
		}
		if r.seconds == 0 {
			return m.bad(number,
				"%s: is a command, which is not run, and utt2dur does not have it "+
					"(utils/data/get_utt2dur.sh makes it)", key)
		}
		m.addUnmeasured(key, r.seconds, 0, r.text)
	case strings.HasPrefix(source, "|"), source == "-":
		return m.bad(number, "%s: standard input and output are not files", key)
	case inArchive:
		m.entries = append(m.entries, entry{path: path,
			more: &detail{text: r.text, by: &arkMember{offset, r}}})
		m.good++
	default:
		r.path = source
		m.add(r)
	}
	return nil
}

// splitArk splits the name of a member of an archive, such as "file.ark:1234".
func splitArk(source string) (path string, offset int64, ok bool) {
	i := strings.LastIndexByte(source, ':')
	if i < 0 || !strings.EqualFold(filepath.Ext(source[:i]), ".ark") {
		return "", 0, false
	}
	offset, err := strconv.ParseInt(source[i+1:], 10, 64)
	return source[:i], offset, err == nil && offset >= 0
}

// duration returns the seconds of a key in utt2dur, or else in reco2dur; 0 when neither has it.
func (m *manifest) duration(key string) (float64, error) {
	for _, name := range []string{"utt2dur", "reco2dur"} {
		rows, err := m.table(name)
		if err != nil {
			return 0, err
		}
		if seconds, ok := clipSeconds(rows[key]); ok {
			return seconds, nil
		}
	}
	return 0, nil
}

// clipSeconds reads a duration that a clip can have.
func clipSeconds(text string) (seconds float64, ok bool) {
	seconds, err := strconv.ParseFloat(text, 64)
	return seconds, err == nil && seconds > 0 && seconds <= maxClipS
}

// transcript returns what the table text has for a key; nil when it has nothing, or when
// transcripts are not wanted.
func (m *manifest) transcript(key string) (*string, error) {
	if !m.wanted.Texts {
		return nil, nil
	}
	rows, err := m.table("text")
	if text, ok := rows[key]; ok {
		return &text, err
	}
	return nil, err
}

// durations reads utt2dur or reco2dur as a manifest: "utterance seconds".
func (m *manifest) durations() error {
	return m.eachLine(func(number int, line []byte) error {
		key, value := keyed(line)
		seconds, ok := clipSeconds(value)
		if !ok {
			return m.bad(number, "has no duration of up to %g s after the name of its utterance",
				maxClipS)
		}
		text, err := m.transcript(key)
		if err == nil {
			m.addUnmeasured(key, seconds, 0, text)
		}
		return err
	})
}

// arkMember is a WAV file inside an archive of Kaldi, which names where it starts. Its own header
// tells where it ends.
type arkMember struct {
	start int64
	row   mention
}

func (a *arkMember) measure(r *row) (media.Info, error) {
	archive := r.path
	r.path += ":" + strconv.FormatInt(a.start, 10)
	info, err := audio.Section(archive, r.path, a.start, 0)
	if err != nil || !a.row.cut {
		return info, err
	}
	info, _, err = cut(info, 0, a.row.offset, a.row.seconds)
	return info, err
}
