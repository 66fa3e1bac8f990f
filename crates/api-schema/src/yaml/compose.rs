//! Tokens to a tree of nodes: the first document of a stream, with anchors and tags resolved to what they name.

use std::collections::HashMap;

use super::Problem;
use super::scan::{Mark, Scanner, Token, TokenKind};

const LONG_TAG_PREFIX: &str = "tag:yaml.org,2002:";
/// How deep nodes may nest. Upstream allows 10,000 levels; ours recurse, and no object comes near.
const DEPTH_MAX: usize = 100;

/// An index into [`Document::nodes`]; aliases make it a graph without owning anything twice.
pub(super) type NodeId = usize;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// The line the node starts on, from zero.
    pub(super) line: usize,
    pub(super) content: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// `tag` is empty unless given; an untagged plain scalar may stand for something else than a string.
    Scalar {
        text: String,
        tag: String,
        plain: bool,
    },
    Sequence(Vec<NodeId>),
    Mapping(Vec<(NodeId, NodeId)>),
    Alias {
        name: String,
        target: NodeId,
    },
}

#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Option<NodeId>,
}

/// The first document of the text. What comes after it is not looked at.
pub(super) fn compose(text: &str) -> Result<Document, Problem> {
    let mut composer = Composer {
        scanner: Scanner::new(text),
        document: Document::default(),
        anchors: HashMap::new(),
        tag_prefixes: HashMap::new(),
        depth: 0,
    };
    composer.document.root = composer.document()?;
    Ok(composer.document)
}

struct Composer {
    scanner: Scanner,
    document: Document,
    anchors: HashMap<String, NodeId>,
    tag_prefixes: HashMap<String, String>,
    depth: usize,
}

impl Composer {
    fn peek(&mut self) -> Result<&Token, Problem> {
        self.scanner.peek()
    }

    fn next_is(&mut self, kinds: &[TokenKind]) -> Result<bool, Problem> {
        let token = self.peek()?;
        Ok(kinds.contains(&token.kind))
    }

    /// Takes the next token if it is of that kind.
    fn accept(&mut self, kind: &TokenKind) -> Result<Option<Token>, Problem> {
        if self.peek()?.kind == *kind { self.scanner.take().map(Some) } else { Ok(None) }
    }

    fn error<T>(&mut self, message: &'static str, context: Mark) -> Result<T, Problem> {
        let at = self.peek()?.start;
        Err(Problem::parser_in(message, context, at))
    }

    fn add(&mut self, line: usize, content: Content) -> NodeId {
        self.document.nodes.push(Node { line, content });
        self.document.nodes.len() - 1
    }

    /// A value that is not written at all.
    fn empty(&mut self, mark: Mark) -> NodeId {
        self.add(mark.line, Content::Scalar { text: String::new(), tag: String::new(), plain: true })
    }

    fn document(&mut self) -> Result<Option<NodeId>, Problem> {
        if self.next_is(&[TokenKind::StreamEnd])? {
            return Ok(None);
        }
        let explicit = self.directives()?;
        let token = self.peek()?;
        let start = token.start;
        if token.kind == TokenKind::DocumentStart {
            self.scanner.take()?;
            let ends = matches!(
                self.peek()?.kind,
                TokenKind::VersionDirective { .. }
                    | TokenKind::TagDirective { .. }
                    | TokenKind::DocumentStart
                    | TokenKind::DocumentEnd
                    | TokenKind::StreamEnd
            );
            if ends {
                let at = self.peek()?.start;
                return Ok(Some(self.empty(at)));
            }
        } else if explicit {
            return Err(Problem::parser("did not find expected <document start>", start));
        }
        let root = self.node(Place { block: true, indentless: false })?;
        // Upstream looks at the token that ends the document, and so finds what cannot be one.
        self.peek()?;
        Ok(Some(root))
    }

    /// Directives in front of the document; whether there were any.
    fn directives(&mut self) -> Result<bool, Problem> {
        self.tag_prefixes.insert("!".to_owned(), "!".to_owned());
        self.tag_prefixes.insert("!!".to_owned(), LONG_TAG_PREFIX.to_owned());
        let (mut any, mut has_version) = (false, false);
        let mut handles: Vec<String> = Vec::new();
        loop {
            let at = self.peek()?.start;
            match self.peek()?.kind.clone() {
                TokenKind::VersionDirective { major, minor } => {
                    if has_version {
                        return Err(Problem::parser("found duplicate %YAML directive", at));
                    }
                    if (major, minor) != (1, 1) {
                        return Err(Problem::parser("found incompatible YAML document", at));
                    }
                    has_version = true;
                }
                TokenKind::TagDirective { handle, prefix } => {
                    if handles.contains(&handle) {
                        return Err(Problem::parser("found duplicate %TAG directive", at));
                    }
                    handles.push(handle.clone());
                    self.tag_prefixes.insert(handle, prefix);
                }
                _ => return Ok(any),
            }
            any = true;
            self.scanner.take()?;
        }
    }

    /// One node with its anchor and tag. `place` says what may stand here.
    fn node(&mut self, place: Place) -> Result<NodeId, Problem> {
        if self.depth >= DEPTH_MAX {
            let at = self.peek()?.start;
            return Err(Problem::parser("exceeded max depth", at));
        }
        self.depth += 1;
        let node = self.node_within(place);
        self.depth -= 1;
        node
    }

    fn node_within(&mut self, place: Place) -> Result<NodeId, Problem> {
        let token = self.peek()?;
        let start = token.start;
        if let TokenKind::Alias(name) = token.kind.clone() {
            let Some(&target) = self.anchors.get(&name) else {
                return Err(Problem::decoder(format!("unknown anchor '{name}' referenced")));
            };
            self.scanner.take()?;
            return Ok(self.add(start.line, Content::Alias { name, target }));
        }
        let Properties { anchor, tag } = self.properties(start)?;
        let has_properties = anchor.is_some() || !tag.is_empty();
        let token = self.peek()?;
        // An anchor may be referred to from within what it names, which is then found to contain itself.
        let id = match &token.kind {
            TokenKind::BlockEntry if place.indentless => self.begin(start, anchor, Content::Sequence(Vec::new())),
            TokenKind::Scalar { text, plain } => {
                // The tag `!` alone asks for nothing in particular.
                let content =
                    Content::Scalar { text: text.clone(), plain: *plain && tag.is_empty() || tag == "!", tag };
                self.scanner.take()?;
                return Ok(self.begin(start, anchor, content));
            }
            TokenKind::FlowSequenceStart => self.begin(start, anchor, Content::Sequence(Vec::new())),
            TokenKind::BlockSequenceStart if place.block => self.begin(start, anchor, Content::Sequence(Vec::new())),
            TokenKind::FlowMappingStart => self.begin(start, anchor, Content::Mapping(Vec::new())),
            TokenKind::BlockMappingStart if place.block => self.begin(start, anchor, Content::Mapping(Vec::new())),
            _ if has_properties => {
                let content = Content::Scalar { text: String::new(), plain: tag.is_empty(), tag };
                return Ok(self.begin(start, anchor, content));
            }
            _ => return self.error("did not find expected node content", start),
        };
        let content = match &self.peek()?.kind {
            TokenKind::BlockEntry => self.indentless_sequence()?,
            TokenKind::FlowSequenceStart => self.flow_sequence()?,
            TokenKind::BlockSequenceStart => self.block_sequence()?,
            TokenKind::FlowMappingStart => self.flow_mapping()?,
            _ => self.block_mapping()?,
        };
        self.document.nodes[id].content = content;
        Ok(id)
    }

    fn begin(&mut self, start: Mark, anchor: Option<String>, content: Content) -> NodeId {
        let id = self.add(start.line, content);
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, id);
        }
        id
    }

    /// An anchor and a tag, in either order.
    fn properties(&mut self, start: Mark) -> Result<Properties, Problem> {
        let mut properties = Properties::default();
        let mut has_tag = false;
        loop {
            let at = self.peek()?.start;
            match self.peek()?.kind.clone() {
                TokenKind::Anchor(name) if properties.anchor.is_none() => properties.anchor = Some(name),
                TokenKind::Tag { handle, suffix } if !has_tag => {
                    has_tag = true;
                    properties.tag = if handle.is_empty() {
                        suffix
                    } else if let Some(prefix) = self.tag_prefixes.get(&handle) {
                        format!("{prefix}{suffix}")
                    } else {
                        return Err(Problem::parser_in("found undefined tag handle", start, at));
                    };
                }
                _ => return Ok(properties),
            }
            self.scanner.take()?;
        }
    }

    fn block_sequence(&mut self) -> Result<Content, Problem> {
        let context = self.scanner.take()?.start;
        let mut items = Vec::new();
        while let Some(entry) = self.accept(&TokenKind::BlockEntry)? {
            items.push(if self.next_is(&[TokenKind::BlockEntry, TokenKind::BlockEnd])? {
                self.empty(entry.end)
            } else {
                self.node(Place { block: true, indentless: false })?
            });
        }
        match self.accept(&TokenKind::BlockEnd)? {
            Some(_) => Ok(Content::Sequence(items)),
            None => self.error("did not find expected '-' indicator", context),
        }
    }

    /// A sequence whose dashes stand at the column of the key it belongs to.
    fn indentless_sequence(&mut self) -> Result<Content, Problem> {
        let ends = [TokenKind::BlockEntry, TokenKind::Key, TokenKind::Value, TokenKind::BlockEnd];
        let mut items = Vec::new();
        while let Some(entry) = self.accept(&TokenKind::BlockEntry)? {
            items.push(if self.next_is(&ends)? {
                self.empty(entry.end)
            } else {
                self.node(Place { block: true, indentless: false })?
            });
        }
        Ok(Content::Sequence(items))
    }

    fn block_mapping(&mut self) -> Result<Content, Problem> {
        let context = self.scanner.take()?.start;
        let mut members = Vec::new();
        while let Some(key) = self.accept(&TokenKind::Key)? {
            let key = self.block_mapping_part(key.end)?;
            let value = match self.accept(&TokenKind::Value)? {
                Some(value) => self.block_mapping_part(value.end)?,
                None => {
                    let at = self.peek()?.start;
                    self.empty(at)
                }
            };
            members.push((key, value));
        }
        match self.accept(&TokenKind::BlockEnd)? {
            Some(_) => Ok(Content::Mapping(members)),
            None => self.error("did not find expected key", context),
        }
    }

    fn block_mapping_part(&mut self, mark: Mark) -> Result<NodeId, Problem> {
        if self.next_is(&[TokenKind::Key, TokenKind::Value, TokenKind::BlockEnd])? {
            return Ok(self.empty(mark));
        }
        self.node(Place { block: true, indentless: true })
    }

    fn flow_sequence(&mut self) -> Result<Content, Problem> {
        let context = self.scanner.take()?.start;
        let mut items = Vec::new();
        let mut first = true;
        loop {
            if self.accept(&TokenKind::FlowSequenceEnd)?.is_some() {
                return Ok(Content::Sequence(items));
            }
            if !first && self.accept(&TokenKind::FlowEntry)?.is_none() {
                return self.error("did not find expected ',' or ']'", context);
            }
            first = false;
            if self.next_is(&[TokenKind::FlowSequenceEnd])? {
                continue;
            }
            items.push(match self.accept(&TokenKind::Key)? {
                Some(key) => self.single_pair(&key)?,
                None => self.node(Place { block: false, indentless: false })?,
            });
        }
    }

    /// `[a: b]`: a mapping of one pair inside a flow sequence.
    fn single_pair(&mut self, key_token: &Token) -> Result<NodeId, Problem> {
        let ends = [TokenKind::Value, TokenKind::FlowEntry, TokenKind::FlowSequenceEnd];
        let key = self.flow_part(&ends, key_token.end)?;
        let value = match self.accept(&TokenKind::Value)? {
            Some(value) => self.flow_part(&ends[1..], value.end)?,
            None => {
                let at = self.peek()?.start;
                self.empty(at)
            }
        };
        Ok(self.add(key_token.start.line, Content::Mapping(vec![(key, value)])))
    }

    fn flow_part(&mut self, ends: &[TokenKind], mark: Mark) -> Result<NodeId, Problem> {
        if self.next_is(ends)? {
            return Ok(self.empty(mark));
        }
        self.node(Place { block: false, indentless: false })
    }

    fn flow_mapping(&mut self) -> Result<Content, Problem> {
        let context = self.scanner.take()?.start;
        let mut members = Vec::new();
        let mut first = true;
        loop {
            if self.accept(&TokenKind::FlowMappingEnd)?.is_some() {
                return Ok(Content::Mapping(members));
            }
            if !first && self.accept(&TokenKind::FlowEntry)?.is_none() {
                return self.error("did not find expected ',' or '}'", context);
            }
            first = false;
            if self.next_is(&[TokenKind::FlowMappingEnd])? {
                continue;
            }
            let ends = [TokenKind::Value, TokenKind::FlowEntry, TokenKind::FlowMappingEnd];
            let key = match self.accept(&TokenKind::Key)? {
                Some(key) => self.flow_part(&ends, key.end)?,
                None => self.node(Place { block: false, indentless: false })?,
            };
            let value = match self.accept(&TokenKind::Value)? {
                Some(value) => self.flow_part(&ends[1..], value.end)?,
                None => {
                    let at = self.peek()?.start;
                    self.empty(at)
                }
            };
            members.push((key, value));
        }
    }
}

/// What may stand where a node is expected.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: bool,
    indentless: bool,
}

#[derive(Debug, Default)]
struct Properties {
    anchor: Option<String>,
    tag: String,
}
