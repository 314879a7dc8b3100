"""Sphinx' settings: docs/ as a site, with the API from docstrings and the commands from their parsers.

`make docs` builds it; site_pages.py does what differs from how GitHub shows these files.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

project = "asrconfig-go"
author = copyright = "The asrconfig-go authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "site_pages"]
exclude_patterns = ["_build", "requirements.txt"]
root_doc = "index"
language = "en"
smartquotes = False  # "--data" keeps its two hyphens
nitpicky = False  # types of other libraries are named without their documentation

napoleon_use_ivar = True  # attributes that are properties, too, stand once
myst_heading_anchors = 4  # by GitHub's rule, so that #anchors work in both places
suppress_warnings = ["myst.strikethrough"]
highlight_language = "none"  # blocks without a language are output

# Docstrings alone are read: nothing is trained, and none of these must be installed.
autodoc_mock_imports = ["IPython", "accelerate", "datasets", "huggingface_hub", "lightning", "matplotlib", "pandas"]
autodoc_mock_imports += ["pyarrow", "scipy", "soundfile", "soxr", "tensorboard", "torch", "tqdm", "transformers"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Members of their own and of what they share in this package, not of Python's exceptions, tuples and the like.
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseException, tuple, dict, str",
    "exclude-members": "__init__, __new__",
}
autosummary_generate = False  # summaries stand above what they name, on the same page
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = "asrconfig-go"
html_static_path = ["_static", "images"]  # site.css takes the dark pictures from there
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
linkcheck_anchors = False  # of pages that scripts fill in
linkcheck_ignore = [r"http://127\.0\.0\.1"]
