//! Chinese sentence parts: the same invented harbour town, written for this project.

use super::{
    Dice,
    sentence::{Part, Sentence, parts},
};

/// Requests to write on, the most explicit first.
pub(super) const CLOSINGS: &[&str] = &[
    "\n\n请按照同样的语气把这份笔记继续写下去，用完整的段落，不要标题，不要列表，至少写三千字，中途不要停下，也不要评论这个任务。",
    "\n\n请接着往下写，至少写三千字。",
    "\n\n请写一个很长的故事。",
    "请继续。",
];

const COMMA: Part = Part::new("，");

/// Appends a whole sentence.
pub(super) fn push_sentence(sentence: &mut Sentence, dice: &mut Dice) {
    match dice.below(5) {
        0 => {
            sentence.extend([dice.pick(TIMES), COMMA]);
            push_clause(sentence, dice);
        }
        1 => {
            push_clause(sentence, dice);
            sentence.extend([COMMA, dice.pick(JOINERS)]);
            push_clause(sentence, dice);
        }
        2 => {
            sentence.extend([dice.pick(OPENERS), COMMA, dice.pick(TIMES)]);
            push_clause(sentence, dice);
        }
        3 => {
            sentence.push(const { Part::new("虽然") });
            push_clause(sentence, dice);
            sentence.extend([COMMA, dice.pick(JOINERS)]);
            push_clause(sentence, dice);
        }
        _ => {
            sentence.extend([dice.pick(TIMES), COMMA]);
            push_clause(sentence, dice);
            sentence.extend([COMMA, dice.pick(AFTERTHOUGHTS)]);
        }
    }
    sentence.push(const { Part::new("。") });
}

fn push_clause(sentence: &mut Sentence, dice: &mut Dice) {
    sentence.extend([dice.pick(SUBJECTS), dice.pick(VERBS), dice.pick(OBJECTS)]);
}

static SUBJECTS: &[Part] = &parts([
    "港口的管理员",
    "一位年老的测量员",
    "夜里的渡船",
    "她的弟弟",
    "镇上的议会",
    "来访的工程师",
    "街角的面包师",
    "我们的邻居",
    "看守灯塔的人",
    "几个学生",
    "档案馆",
    "清晨的火车",
    "退休的老师",
    "那位细心的读者",
    "果园的主人",
    "新来的职员",
    "修理队",
    "合唱团",
    "图书管理员",
    "不知名的捐赠者",
    "气象站",
    "木匠",
    "集市上的商贩",
    "其中一名水手",
    "村里的医生",
    "远房的表哥",
    "园丁",
    "印刷厂",
    "最后一位客人",
    "渔船队",
    "邮局",
    "安静的陌生人",
]);

static VERBS: &[Part] = &parts([
    "描述了",
    "早已忘记",
    "慢慢修好了",
    "数过",
    "小心地避开",
    "十分喜爱",
    "一直记录着",
    "带回了",
    "测量了",
    "期待着",
    "付清了",
    "悄悄换掉了",
    "打听过",
    "无法解释",
    "画下了",
    "答应归还",
    "离不开",
    "写信谈到",
    "继承了",
    "照看着",
    "差点丢失",
    "不肯卖掉",
    "比较过",
    "重新发现了",
    "推迟了",
    "粉刷了",
    "收起了",
    "拆开了",
    "借走了",
    "学会了珍惜",
]);

static OBJECTS: &[Part] = &parts([
    "坏掉的时钟",
    "一盒旧照片",
    "食盐的价格",
    "三条木船",
    "冬天的时刻表",
    "一套地图",
    "西边的城墙",
    "缺失的几页",
    "一片麦田",
    "第一台蒸汽机",
    "钟声",
    "几枚硬币",
    "多年的书信",
    "没有写完的小说",
    "全镇的水源",
    "街道的名字",
    "一组铜管乐器",
    "整年的收成",
    "游戏的规则",
    "狭窄的楼梯",
    "傍晚天空的颜色",
    "新屋顶的费用",
    "一串小岛",
    "黑面包的做法",
    "候鸟的习性",
    "借来的雨伞",
    "广场的方案",
    "公园里最老的树",
    "没有寄信人的信",
    "每天的读数",
    "洪水的故事",
    "地窖的钥匙",
]);

static TIMES: &[Part] = &parts([
    "下雨之前",
    "一个漫长的星期过后",
    "在客栈的后屋里",
    "通往海边的路上",
    "退潮的时候",
    "最冷的那个月",
    "第二次会议之后",
    "靠近树林的地方",
    "商店关门以后",
    "一个下午的时间里",
    "在两位朋友的帮助下",
    "远离城镇的山谷中",
    "借着灯光",
    "五月三日那天",
    "空荡荡的喷泉旁",
    "早饭之前",
    "沿着运河",
    "水烧开的时候",
    "那年春天",
    "从塔楼的窗口望去",
    "大雾散去之后",
    "夜深人静时",
]);

static OPENERS: &[Part] = &parts([
    "根据日记的记载",
    "据大家回忆",
    "公平地说",
    "换句话说",
    "几年以后",
    "说来也巧",
    "不出所料",
    "按照惯例",
    "在镇长看来",
    "奇怪的是",
    "事后想来",
    "从远处看",
    "如果报告没有错",
    "起初",
    "与此同时",
    "出乎我们的意料",
]);

static JOINERS: &[Part] =
    &parts(["于是", "但是", "所以", "因为", "直到", "同时", "就在这时", "然而", "从那以后", "接着"]);

static AFTERTHOUGHTS: &[Part] = &parts([
    "至少看起来是这样",
    "事情就这样过去了",
    "很少有人注意到",
    "一切照旧",
    "大家都很满意",
    "这已经不是第一次了",
    "只有一个小小的例外",
    "整夜都在下雨",
    "谁也没有感到意外",
    "正如约定的那样",
]);
